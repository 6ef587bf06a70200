"""Servers whose versions are in an object store: the data folder is a cache, and the store is never asked in vain."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharp.v1 import label_pb2
from sharp.v1 import learner_admin_pb2 as pb
from sharp.v1 import snapshot_pb2 as snap
from tests.server.running import SECONDS, Server, answered, blobs, refused, until
from tests.server.storage.bucket_server import BUCKET, BucketServer

Serve = Callable[..., Server]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    with BucketServer(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def files(server: Server) -> list[Path]:
    return sorted((server.data / "snapshots").glob("*/*.safetensors"))


def objects(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*/*")}


def listed(server: Server, name: str) -> list[snap.Snapshot]:
    return list(server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner=name)).snapshots)


def test_a_server_without_its_files_answers_from_the_bucket_as_before(serve: Serve, bucket: BucketServer) -> None:
    server = serve(data__objects=f"s3://{BUCKET}/some/prefix")
    server.create("pets", seed=3)
    x, _ = blobs("abcd")
    assert server.teach("pets", blobs("ab"), blobs("cd")) == 2
    server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="pets"))
    before, were = server.predict("pets", x), {path.name: path.read_bytes() for path in files(server)}
    assert len(were) == 3
    server.stop()
    for path in files(server):
        path.unlink()
    server.start()
    after = server.predict("pets", x)
    assert (after.model_version, answered(after)) == (2, answered(before))
    assert list(after.distances) == list(before.distances) and list(after.vote_shares) == list(before.vote_shares)
    (fetched,) = files(server)
    assert were[fetched.name] == fetched.read_bytes(), "only what serves is fetched"
    # The others come when they are asked for.
    for snapshot in listed(server, "pets"):
        assert server.exported("pets", snapshot.id)[1] == were[f"{snapshot.id}.safetensors"]
    assert server.teach("pets", blobs("ef")) == 3
    assert not server.status().corruption_events
    assert "a-very-secret-key" not in server.log.read_text()


def test_a_damaged_file_is_healed_and_only_one_damaged_everywhere_is_damage(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = serve(data__objects=str(store))
    server.create("pets")
    x, y = blobs("ab")
    server.teach("pets", (x, y), blobs("cd"))
    server.stop()
    newest = files(server)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-7])
    server.start()
    assert server.predict("pets", x[:9]).model_version == 2 and newest.read_bytes() == whole
    assert not server.status().corruption_events and server.learner("pets").status.damaged_snapshots == 0
    # Damage while it runs: the trainer's base, and a snapshot that is made of it.
    newest.write_bytes(whole[:-7])
    server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="pets"))
    newest.write_bytes(whole[:-7])
    assert server.teach("pets", blobs("ef")) == 3
    server.stop()
    newest = next(path for path in files(server) if path.name.startswith("00000003a"))
    newest.write_bytes(b"nothing")
    sha256 = next(row for row in recorded(server) if row[0] == newest.stem)[1]
    (damaged,) = store.glob(f"*/{sha256.hex()}")
    damaged.write_bytes(b"nothing either")
    server.start()
    assert server.predict("pets", x[:9]).model_version == 4, "the version before serves under a new number"
    (event,) = server.status().corruption_events
    assert (event.lost_model_version, event.serving_model_version) == (3, 4)


def recorded(server: Server) -> list[tuple[str, bytes]]:
    """Name and SHA-256 of every snapshot in the journal of a server that has stopped."""
    connection = sqlite3.connect(server.data / "journal.db")
    rows = connection.execute("SELECT name, sha256 FROM snapshots").fetchall()
    connection.close()
    return rows


def test_forgetting_a_class_leaves_no_object_that_holds_it(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = serve(data__objects=store.as_uri(), data__automatic_snapshots=3)
    server.create("pets")
    for episode in ("ab", "cd", "ef", "gh", "ij"):
        server.teach("pets", blobs(episode))
    assert len(objects(store)) == 3, "those that are no longer kept are gone with their files, phases too"
    server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="pets"))
    assert len(objects(store)) == 3, "the same content is the same object"
    (folder,) = store.iterdir()
    left_by_a_crash = folder / ("0" * 64)
    left_by_a_crash.write_bytes(b"a version that was never recorded, with the class in it")
    request = pb.ForgetClassRequest(
        learner="pets", label=label_pb2.Label(text="c"), older_snapshots=pb.OLDER_SNAPSHOTS_DELETE
    )
    server.admin.ForgetClass(request)
    kept = {snapshot.sha256.hex() for snapshot in listed(server, "pets")}
    assert objects(store) == kept and len(kept) == 1
    server.admin.DeleteLearner(pb.DeleteLearnerRequest(name="pets"))
    assert objects(store) == set()


def test_two_learners_of_the_same_content_do_not_lose_each_others_objects(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = serve(data__objects=str(store))
    server.create("one", seed=5)
    server.teach("one", blobs("ab"))
    snapshot, content = server.exported("one")
    header = snap.ImportHeader(learner="two", size_bytes=len(content), sha256=snapshot.sha256, restore=True)
    parts = [snap.ImportSnapshotRequest(header=header), snap.ImportSnapshotRequest(chunk=content)]
    server.admin.ImportSnapshot(iter(parts))
    assert len(list(store.glob(f"*/{snapshot.sha256.hex()}"))) == 2
    x, _ = blobs("ab")
    before = server.predict("two", x)
    server.admin.DeleteLearner(pb.DeleteLearnerRequest(name="one"))
    server.stop()
    for path in files(server):
        path.unlink()
    server.start()
    after = server.predict("two", x)
    assert (answered(after), list(after.distances)) == (answered(before), list(before.distances))


def test_without_the_store_predictions_go_on_and_versions_wait_for_it(
    serve: Serve, tmp_path: Path, bucket: BucketServer
) -> None:
    server = serve(data__objects=f"s3://{BUCKET}", data__objects_seconds=2)
    server.create("pets")
    x, y = blobs("ab")
    server.teach("pets", (x, y))
    bucket.stop()
    with server.stream("pets", "later") as stream:
        stream.send(*blobs("cd"))
        stream.end()
        stream.wait_ack()
        until(lambda: server.status().object_store_failure != "", SECONDS, "nobody says that the store is gone")
        assert server.predict("pets", x[:9]).model_version == 1
        with refused("OBJECT_STORE_UNAVAILABLE"):
            server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="pets"), timeout=SECONDS)
        request = pb.ForgetClassRequest(learner="pets", label=label_pb2.Label(text="a"))
        with refused("OBJECT_STORE_UNAVAILABLE"):
            server.admin.ForgetClass(request, timeout=SECONDS)
        assert len(listed(server, "pets")) == 1 and server.learner("pets").status.model_version == 1
        assert answered(server.predict("pets", x)) == y
        with BucketServer(tmp_path, bucket.port):
            assert stream.wait_event("learned").learned.model_version == 2
            until(lambda: server.status().object_store_failure == "", SECONDS, "nobody says that the store is back")
            assert server.stop() == 0
            for path in files(server):
                path.unlink()
            server.start()
            assert server.predict("pets", x[:9], min_model_version=2).model_version == 2


def test_an_older_folder_is_put_into_the_store_and_the_cache_keeps_its_bound(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.create("pets")
    server.teach("pets", blobs("ab"), blobs("cd"), blobs("ef"))
    shas = {snapshot.sha256.hex() for snapshot in listed(server, "pets")}
    server.stop()
    store = tmp_path / "store"
    for uid, sha256 in (("d" * 32, "1" * 64), ("e" * 32, "2" * 64)):
        (store / uid).mkdir(parents=True)
        (store / uid / sha256).write_bytes(b"of a learner that the journal does not have")
    (server.data / "snapshots" / ("d" * 32)).mkdir()  # it was here, and deleted while the store was gone
    server.settings |= {"data.objects": str(store), "data.cache_bytes": 1, "data.objects_grace_seconds": 0}
    server.start()
    until(lambda: objects(store) == {*shas, "2" * 64}, SECONDS, "the store does not hold what the journal lists")
    until(lambda: len(files(server)) == 1, SECONDS, "the cache has no bound")
    assert files(server)[0].name.startswith("00000003a"), "what serves stays"
    oldest = listed(server, "pets")[-1]
    server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="pets", snapshot_id=oldest.id))
    assert {known.label.text for known in server.learner("pets").classes} == set("ab")


def test_a_half_learned_episode_goes_on_from_its_phase_in_the_store(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = serve(data__objects=str(store))
    for name in ("undisturbed", "pets"):
        server.create(name, seed=4, training__phases="3", training__min_steps="400")
    server.teach("undisturbed", blobs("ab"))
    x, _ = blobs("ab")
    wanted = server.predict("undisturbed", x)
    with server.stream("pets") as stream:
        stream.send(*blobs("ab"))
        stream.end()
        stream.wait_ack()
        until(lambda: phase(server) != b"", SECONDS, "no phase is recorded")
        server.kill()
    sha256 = phase(server)
    if sha256:  # else it was learned in that very moment
        assert sha256.hex() in objects(store)
        for path in (server.data / "work").glob("*"):
            path.unlink()
    server.start()
    until(lambda: server.learner("pets").status.model_version == 1, SECONDS, "the episode is not learned")
    learned = server.predict("pets", x)
    assert answered(learned) == answered(wanted)
    assert list(learned.distances) == list(wanted.distances) and list(learned.vote_shares) == list(wanted.vote_shares)
    kept = {server.exported(name)[0].sha256.hex() for name in ("undisturbed", "pets")}
    until(lambda: objects(store) == kept, SECONDS, "phases don't go with the episode")
    if sha256:
        assert f"{sha256.hex()}.safetensors was fetched from the object store" in server.log.read_text()


def phase(server: Server) -> bytes:
    connection = sqlite3.connect(f"file:{server.data / 'journal.db'}?mode=ro", uri=True, timeout=20)
    rows = connection.execute("SELECT phase_sha256 FROM episodes WHERE phase_sha256 IS NOT NULL").fetchall()
    connection.close()
    return rows[0][0] if rows else b""


def test_settings_that_name_no_store_stop_the_server(serve: Serve, tmp_path: Path) -> None:
    for url, said in {
        "s3://key:secret-word@bucket": "must not hold credentials",
        "gs://bucket": "s3://BUCKET/PREFIX",
        "s3:///prefix": "s3://BUCKET/PREFIX",
    }.items():
        server = serve(folder=json.dumps(url).strip('"').replace("/", "_"), wait=False, data__objects=url)
        assert server.process.wait(SECONDS) != 0
        assert said in server.log.read_text() and "secret-word" not in server.log.read_text()
