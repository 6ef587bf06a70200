"""The data folder as the cache of an object store: what may be deleted, and when, and what may not."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sharp_server.errors import ObjectsUnavailable
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.object_upkeep import ObjectUpkeep
from sharp_server.storage.objects import FolderObjects
from sharp_server.storage.records import NewLearner, NewSnapshot, NewVersion
from sharp_server.storage.sqlite.storage import SqliteStorage
from sharp_server.storage.version_files import VersionFiles

GRACE = 1000.0
CONTENTS = [name.encode() * 100 for name in ("one", "two", "three")]


@dataclass
class Owned:
    id: int
    uid: str
    head: tuple[str, bytes] | None = None


@dataclass
class Parts:
    folder: DataFolder
    storage: SqliteStorage
    store: FolderObjects
    root: Path
    files: VersionFiles
    upkeep: ObjectUpkeep
    learner: Owned

    def objects(self) -> set[bytes]:
        return {found.sha256 for found in self.store.list(self.learner.uid)}

    def local(self) -> list[str]:
        return sorted(path.stem for path in self.folder.of_learner(self.learner.uid).glob("*.safetensors"))

    async def publish(self, version: int, content: bytes, keep: int = 5) -> bytes:
        """A version as the server publishes it: file, object, row, then what is replaced goes."""
        name, sha256 = f"{version:08d}a-000000000000", hashlib.sha256(content).digest()
        path = self.files.path(self.learner.uid, name)
        path.write_bytes(content)
        async with self.files.recording(self.learner.uid, path, sha256):
            snapshot = NewSnapshot(self.learner.id, name, version, 1, "[]", "automatic", len(content), sha256)
            published = await self.storage.publish(NewVersion(snapshot, "learned", keep))
        self.learner.head = (name, sha256)
        await self.files.delete_snapshots(self.learner, list(published.replaced))
        return sha256


@contextlib.asynccontextmanager
async def opened(tmp_path: Path, cache_bytes: int = 0) -> AsyncIterator[Parts]:
    folder, storage, thread = (
        DataFolder(tmp_path / "data"),
        SqliteStorage(tmp_path / "data/journal.db"),
        BackgroundThread(),
    )
    store = FolderObjects(tmp_path / "store")
    folder.acquire()
    await storage.open()
    row = await storage.create_learner(NewLearner("pets", "uid-of-pets", b"", "{}", None, None), 9)
    folder.make_learner(row.uid)
    learner, files = Owned(row.id, row.uid), VersionFiles(folder, storage, store, thread)
    upkeep = ObjectUpkeep(files, storage, [learner], thread, cache_bytes, GRACE)
    try:
        yield Parts(folder, storage, store, tmp_path / "store", files, upkeep, learner)
    finally:
        await storage.close()
        thread.close()
        folder.release()


def run(tmp_path: Path, work: Callable[[Parts], Coroutine[Any, Any, None]], cache_bytes: int = 0) -> None:
    async def main() -> None:
        async with opened(tmp_path, cache_bytes) as parts:
            await asyncio.wait_for(work(parts), 60)

    asyncio.run(main())


def age(path: Path, seconds: float) -> None:
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))


def test_an_object_goes_with_its_last_record_and_not_before(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        one = await parts.publish(1, CONTENTS[0], keep=2)
        two = await parts.publish(2, CONTENTS[1], keep=2)
        again = await parts.publish(3, CONTENTS[0], keep=2)
        assert one == again and parts.objects() == {one, two}, "version 1 went, and version 3 has the same content"
        await parts.publish(4, CONTENTS[2], keep=1)
        assert len(parts.objects()) == 1 and len(parts.local()) == 1

    run(tmp_path, work)


def test_what_nothing_refers_to_is_swept_when_it_is_old_and_never_before(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        kept = await parts.publish(1, CONTENTS[0])
        shas = [hashlib.sha256(content).digest() for content in CONTENTS[1:]]
        for sha256, content in zip(shas, CONTENTS[1:], strict=True):
            parts.store.put(parts.learner.uid, sha256, content)
        for sha256 in (kept, shas[0]):
            age(parts.root / parts.learner.uid / sha256.hex(), GRACE + 60)
        parts.store.put("uid-of-another-server", shas[0], CONTENTS[1])
        age(parts.root / "uid-of-another-server" / shas[0].hex(), GRACE + 60)
        await parts.upkeep.round()
        assert parts.objects() == {kept, shas[1]}, "only the old one, that no record refers to, goes"
        assert len(parts.store.list("uid-of-another-server")) == 1
        assert await parts.files.delete_unneeded(parts.learner) == 1 and parts.objects() == {kept}

    run(tmp_path, work)


def test_nobody_deletes_an_object_while_it_is_being_recorded(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        sha256 = hashlib.sha256(CONTENTS[0]).digest()
        path = tmp_path / "file"
        path.write_bytes(CONTENTS[0])
        async with parts.files.recording(parts.learner.uid, path, sha256):
            age(parts.root / parts.learner.uid / sha256.hex(), GRACE + 60)
            await parts.files.tidy(parts.learner)
            await parts.files.delete_unneeded(parts.learner)
            await parts.upkeep.round()
            assert parts.objects() == {sha256}
        await parts.files.tidy(parts.learner)
        assert parts.objects() == set(), "it was never recorded"

    run(tmp_path, work)


def test_an_object_that_is_recorded_while_others_are_looked_up_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(parts: Parts) -> None:
        looked, published, needed = asyncio.Event(), asyncio.Event(), parts.files.needed

        async def slow(learner: Owned) -> set[bytes]:
            found = await needed(learner)
            looked.set()
            await published.wait()
            return found

        path, sha256 = tmp_path / "file", hashlib.sha256(CONTENTS[0]).digest()
        path.write_bytes(CONTENTS[0])
        async with parts.files.recording(parts.learner.uid, path, sha256):
            monkeypatch.setattr(parts.files, "needed", slow)
            tidying = asyncio.ensure_future(parts.files.tidy(parts.learner))
            await looked.wait()
            snapshot = NewSnapshot(parts.learner.id, "00000001a-000000000000", 1, 1, "[]", "automatic", 9, sha256)
            await parts.storage.publish(NewVersion(snapshot, "learned", 5))
        published.set()
        await tidying
        assert parts.objects() == {sha256}

    run(tmp_path, work)


def test_what_the_store_lacks_is_put_there_unless_it_is_damaged_here(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        shas = [await parts.publish(version, content) for version, content in enumerate(CONTENTS, 1)]
        shutil.rmtree(parts.root / parts.learner.uid)
        parts.files.path(parts.learner.uid, "00000002a-000000000000").write_bytes(b"damaged")
        await parts.upkeep.round()
        assert parts.objects() == {shas[0], shas[2]}

    run(tmp_path, work)


def test_the_cache_drops_what_was_used_longest_ago_and_neither_what_serves_nor_the_last_copy(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        shas = [await parts.publish(version, bytes([version]) * 100) for version in range(1, 6)]
        names = parts.local()
        for place, name in enumerate(names):
            age(parts.files.path(parts.learner.uid, name), 1000 - place)
        parts.files.used(parts.learner.uid, names[0])
        parts.store.delete(parts.learner.uid, [shas[1]])  # the file here is the last copy
        parts.learner.head = (names[2], shas[2])
        await parts.upkeep.trim()
        assert parts.local() == [names[0], names[1], names[2]], "two of five may stay, and two must"
        assert parts.files.heal(parts.learner.uid, names[4], shas[4])
        assert parts.files.path(parts.learner.uid, names[4]).read_bytes() == b"\5" * 100

    run(tmp_path, work, cache_bytes=300)


def test_a_store_that_is_gone_is_not_a_store_that_has_lost_something(tmp_path: Path) -> None:
    async def work(parts: Parts) -> None:
        sha256 = await parts.publish(1, CONTENTS[0])
        (name,) = parts.local()
        parts.learner.head = None
        parts.root.rename(tmp_path / "unmounted")
        with pytest.raises(ObjectsUnavailable):
            parts.files.heal(parts.learner.uid, name, sha256)
        await parts.upkeep.trim()
        assert parts.local() == [name] and parts.files.failure
        with pytest.raises(ObjectsUnavailable):
            await parts.publish(2, CONTENTS[1])
        assert [row.version for row in await parts.storage.snapshots(parts.learner.id)] == [1]
        asked = 0

        def give_up() -> bool:
            nonlocal asked
            asked += 1
            if asked == 1:
                (tmp_path / "unmounted").rename(parts.root)
            return False

        path, sha256 = tmp_path / "file", hashlib.sha256(CONTENTS[2]).digest()
        path.write_bytes(CONTENTS[2])
        async with parts.files.recording(parts.learner.uid, path, sha256, give_up):
            assert asked == 1 and sha256 in parts.objects() and not parts.files.failure

    run(tmp_path, work, cache_bytes=1)


def test_finished_phases_are_looked_for_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[threading.Thread] = []

    def has_phase(folder: DataFolder, stem: str) -> bool:
        looked.append(threading.current_thread())
        return True

    async def work() -> None:
        async with opened(tmp_path) as parts:
            await parts.files.fetch_phase(parts.learner, 1, "stem")

    monkeypatch.setattr(DataFolder, "has_phase", has_phase)
    asyncio.run(work())
    assert looked and threading.main_thread() not in looked
