"""What every object store promises, a folder and a bucket alike."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharp_server.errors import ObjectsUnavailable
from sharp_server.storage.bucket import BucketObjects
from sharp_server.storage.objects import (
    DamagedObjectError,
    FolderObjects,
    MissingObjectError,
    ObjectStore,
    fetch_file,
    put_file,
)
from tests.server.storage.bucket_server import BUCKET, BucketServer

ONE, TWO = b"one" * 1000, b"two" * 500_000


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketServer]:
    with BucketServer(tmp_path_factory.mktemp("bucket")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


Open = Callable[[str], ObjectStore]


@pytest.fixture(params=["folder", "bucket"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the store below a prefix: the same prefix is the same store."""
    if request.param == "folder":
        return lambda prefix: FolderObjects(tmp_path / "objects" / prefix)
    request.getfixturevalue("bucket")
    return lambda prefix: BucketObjects(BUCKET, f"{tmp_path.name}/{prefix}", 20.0)


@pytest.fixture
def store(open_store: Open) -> ObjectStore:
    return open_store("here")


def content_of(store: ObjectStore, uid: str, name: bytes) -> bytes:
    return b"".join(store.read(uid, name))


def test_what_was_put_is_found_by_whoever_opens_the_store(store: ObjectStore, open_store: Open) -> None:
    before = time.time()
    for content in (ONE, TWO):
        store.put("a", sha256(content), content)
    other = open_store("here")
    assert [content_of(other, "a", sha256(content)) for content in (ONE, TWO)] == [ONE, TWO]
    listed = other.list("a")
    assert {found.sha256 for found in listed} == {sha256(ONE), sha256(TWO)} and {found.uid for found in listed} == {"a"}
    assert all(before - 5 < found.modified < time.time() + 5 for found in listed)
    assert open_store("elsewhere").list() == []


def test_an_object_is_never_overwritten(store: ObjectStore) -> None:
    store.put("a", sha256(ONE), ONE)
    store.put("a", sha256(ONE), b"something else under the same name")
    assert content_of(store, "a", sha256(ONE)) == ONE


def test_learners_have_objects_of_their_own_even_of_the_same_content(store: ObjectStore) -> None:
    for uid in ("a", "b"):
        store.put(uid, sha256(ONE), ONE)
    assert sorted(found.uid for found in store.list()) == ["a", "b"]
    store.delete("a", [sha256(ONE)])
    assert not store.has("a", sha256(ONE)) and store.has("b", sha256(ONE))
    assert [found.uid for found in store.list()] == ["b"] and store.list("a") == []


def test_deleting_what_is_not_there_is_no_fault(store: ObjectStore) -> None:
    store.put("a", sha256(ONE), ONE)
    store.delete("a", [sha256(TWO), sha256(ONE), sha256(TWO)])
    store.delete("a", [sha256(ONE)])
    store.delete("nobody", [])
    assert store.list() == []


def test_a_missing_object_is_told_from_a_store_that_does_not_answer(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(MissingObjectError):
        content_of(store, "a", sha256(ONE))
    with pytest.raises(MissingObjectError):
        fetch_file(store, "a", sha256(ONE), tmp_path / "file")
    assert not store.has("a", sha256(ONE)) and not list(tmp_path.glob("*file*"))


def test_files_go_in_and_come_out_whole(store: ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(TWO)
    put_file(store, "a", sha256(TWO), source)
    target.write_bytes(b"damaged")
    fetch_file(store, "a", sha256(TWO), target)
    assert target.read_bytes() == TWO
    source.unlink()
    put_file(store, "a", sha256(TWO), source)  # it is there: nothing is read


def test_a_file_that_is_not_what_it_is_said_to_be_is_not_put(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(ONE)
    with pytest.raises(DamagedObjectError):
        put_file(store, "a", sha256(TWO), tmp_path / "file")
    assert store.list() == []


def test_a_damaged_object_never_becomes_a_file(store: ObjectStore, tmp_path: Path) -> None:
    store.put("a", sha256(ONE), ONE[:-1])
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(DamagedObjectError):
        fetch_file(store, "a", sha256(ONE), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"before" and not list(tmp_path.glob(".file*"))


# ---- a store that does not answer ------------------------------------------------------------------------------------


def unavailable(store: ObjectStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", sha256(ONE), ONE),
        lambda: store.has("a", sha256(ONE)),
        lambda: content_of(store, "a", sha256(ONE)),
        lambda: store.delete("a", [sha256(ONE)]),
        lambda: store.list("a"),
    ]
    for call in calls:
        with pytest.raises(ObjectsUnavailable) as caught:
            call()
        assert "a-very-secret-key" not in str(caught.value) and "/" not in str(caught.value)


def test_a_folder_that_is_not_mounted_has_no_missing_objects(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path / "share")
    (tmp_path / "share").rmdir()
    unavailable(store)
    assert not (tmp_path / "share").exists()


def test_a_bucket_that_nobody_serves_or_that_never_answers_is_unavailable(
    bucket: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait here for ever
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        unavailable(BucketObjects(BUCKET, "", 0.2))
    unavailable(BucketObjects(BUCKET, "", 0.2))


def test_a_bucket_that_does_not_exist_is_unavailable_rather_than_empty(bucket: BucketServer) -> None:
    store = BucketObjects("another-bucket", "", 20.0)
    with pytest.raises(ObjectsUnavailable):
        content_of(store, "a", sha256(ONE))
    with pytest.raises(ObjectsUnavailable):
        store.put("a", sha256(ONE), ONE)


def test_what_is_no_object_of_ours_is_not_listed_and_drafts_go_with_the_next_deletion(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path)
    store.put("a", sha256(ONE), ONE)
    (tmp_path / "a" / ".draft-0123").write_bytes(ONE)
    (tmp_path / "a" / "notes.txt").write_text("of the operator")
    (tmp_path / "README").write_text("of the operator")
    assert [found.sha256 for found in store.list()] == [sha256(ONE)]
    store.delete("a", [])
    assert sorted(os.listdir(tmp_path / "a")) == sorted([sha256(ONE).hex(), "notes.txt"])
