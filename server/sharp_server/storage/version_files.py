"""Files of versions, snapshots and phases: the data folder, as the truth or as the cache of an object store.

Without an object store the data folder is all there is, and nothing here costs anything. With one the order is the
promise: an object is durable in the store before the journal records it, and deleted after the transaction that drops
its last record. Files are fetched where they are missing or damaged, verified. Whoever can't reach the store must
never take that for damage, and must never lose what only this machine has.

Objects belong to learners, and a learner has one owner: so nobody else puts or deletes them at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from sharp_server.errors import ObjectsUnavailable
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import SUFFIX, DataFolder, sha256_of
from sharp_server.storage.interface import Storage
from sharp_server.storage.objects import (
    DamagedObjectError,
    MissingObjectError,
    ObjectStore,
    StoredObject,
    fetch_file,
    put_file,
)

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two tries to reach the store."""

T = TypeVar("T")


class OwnedLearner(Protocol):
    """A learner of this server."""

    @property
    def id(self) -> int:
        """In the journal."""
        ...

    @property
    def uid(self) -> str:
        """In names of files and objects."""
        ...


class VersionFiles:
    """Puts, fetches and deletes the files of learners; async methods belong to the event loop."""

    def __init__(
        self,
        folder: DataFolder,
        storage: Storage,
        objects: ObjectStore | None,
        thread: BackgroundThread,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._storage, self._objects, self._thread = folder, storage, objects, thread
        self._on_failure = on_failure
        self._known: dict[str, set[bytes]] = {}
        """By learner: what the journal refers to, or did, as far as this process has seen."""
        self._unrecorded: dict[tuple[str, bytes], int] = {}
        """Objects that are being put and recorded, and how often: nobody may delete them meanwhile."""
        self._failure = ""

    @property
    def remote(self) -> bool:
        """Whether there is an object store: the data folder is its cache."""
        return self._objects is not None

    @property
    def failure(self) -> str:
        """Why the store could not be reached when it was last tried; empty: it could, or there is none."""
        return self._failure

    def path(self, uid: str, name: str) -> Path:
        """The local file of a snapshot, which may be missing where there is an object store."""
        return self._folder.snapshot(uid, name)

    # ---- in a thread: local files from the store ----------------------------------------------------------------

    def heal(self, uid: str, name: str, sha256: bytes) -> bool:
        """Fetch the file of a snapshot that is missing or damaged here; False: it can't be had from anywhere."""
        return self._fetch(uid, sha256, self.path(uid, name))

    def ensure(self, uid: str, name: str, sha256: bytes) -> None:
        """Fetch the file of a snapshot if the one here is not sound, and it can be had."""
        if self.remote and not _is_sound(self.path(uid, name), sha256):
            self.heal(uid, name, sha256)

    def used(self, uid: str, name: str) -> None:
        """The file of a snapshot was used just now: others leave the cache before it does."""
        if self.remote:
            path = self.path(uid, name)
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (time.time(), path.stat().st_mtime))

    def older_than(self, moment: float) -> dict[str, list[Path]]:
        """The local files of learners (by uid) that were written before a moment."""
        return self._folder.older_than(moment)

    def drop(self, paths: Iterable[Path]) -> None:
        """Delete local files, which the caller knows to be no more than a cache."""
        for path in paths:
            path.unlink(missing_ok=True)

    def _fetch(self, uid: str, sha256: bytes, path: Path) -> bool:
        if self._objects is None:
            return False
        try:
            with self.watched():
                fetch_file(self._objects, uid, sha256, path)
        except (MissingObjectError, DamagedObjectError) as error:
            log.warning("%s can't be had from the object store: %s", path.name, error)
            return False
        log.info("%s was fetched from the object store", path.name)
        return True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A call of the store: whether it could be reached is remembered, and logged when that changes."""
        try:
            yield
        except ObjectsUnavailable as error:
            self._on_failure()
            if not self._failure:
                log.warning("the object store can't be reached; versions wait: %s", error)
            self._failure = str(error)
            raise
        if self._failure:
            log.info("the object store can be reached again")
            self._failure = ""

    # ---- putting ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def recording(
        self, uid: str, path: Path, sha256: bytes, give_up: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[None]:
        """The file is durable in the store while the caller records it; until `give_up`, it waits for the store."""
        if self._objects is None:
            yield
            return
        put, key = self._put, (uid, sha256)
        self._unrecorded[key] = self._unrecorded.get(key, 0) + 1
        try:
            await self.until_reached(lambda: self._thread.run_in_thread(put, uid, path, sha256), give_up)
            self._known.setdefault(uid, set()).add(sha256)
            yield
        finally:
            self._unrecorded[key] -= 1
            if not self._unrecorded[key]:
                del self._unrecorded[key]

    def _put(self, uid: str, path: Path, sha256: bytes) -> None:
        assert self._objects is not None
        with self.watched():
            put_file(self._objects, uid, sha256, path)

    async def until_reached(self, work: Callable[[], Awaitable[T]], give_up: Callable[[], bool] = lambda: False) -> T:
        """Do something with the store, and wait for it as long as it can't be reached, ever less often."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await work()
            except ObjectsUnavailable:
                deadline = time.monotonic() + pause
                while time.monotonic() < deadline:
                    if give_up():
                        raise
                    await asyncio.sleep(_FIRST_PAUSE)
                pause = min(2 * pause, _LONGEST_PAUSE)

    # ---- phases -------------------------------------------------------------------------------------------------

    async def record_phase(self, learner: OwnedLearner, episode: int, path: Path | None, sha256: bytes) -> None:
        """Note a finished phase in the journal, with its object where that can be put: another machine goes on there.

        A store that can't be reached costs nothing but that: the next phase is put again.
        """
        if self._objects is None or path is None or self._failure:
            await self._storage.advance(episode)
            return
        try:
            async with self.recording(learner.uid, path, sha256):
                await self._storage.advance(episode, sha256)
        except (ObjectsUnavailable, DamagedObjectError, FileNotFoundError) as error:  # or the next phase came already
            log.warning("a finished phase was not put into the object store: %s", error)
            await self._storage.advance(episode)
            return
        await self.tidy(learner)

    async def fetch_phase(self, learner: OwnedLearner, episode: int, stem: str) -> None:
        """Fetch the newest finished phase of an episode, if there is none here; without it the episode starts over."""
        if self._objects is None or await self._thread.run_in_thread(self._folder.has_phase, stem):
            return
        rows = await self._storage.unlearned_episodes(learner.id)
        sha256 = next((row.phase_sha256 for row in rows if row.id == episode), b"")
        if sha256:
            path = self._folder.work / f"{stem}-0000-{sha256.hex()}{SUFFIX}"
            with contextlib.suppress(ObjectsUnavailable):  # the result is the same, only later
                await self._thread.run_in_thread(self._fetch, learner.uid, sha256, path)

    async def clear_work(self, learner: OwnedLearner) -> None:
        """Delete a learner's half-learned episodes, which the journal does not go on from any more."""
        await self._thread.run_in_thread(self._folder.clear_work, learner.uid)
        await self.tidy(learner)

    # ---- deleting -----------------------------------------------------------------------------------------------

    async def know(self, learner: OwnedLearner) -> None:
        """A learner is taken up: these are the objects that the journal refers to."""
        if self._objects is not None:
            self._known[learner.uid] = await self.needed(learner)

    async def needed(self, learner: OwnedLearner) -> set[bytes]:
        """The objects that some record of a learner refers to."""
        snapshots = {row.sha256 for row in await self._storage.snapshots(learner.id)}
        phases = {row.phase_sha256 for row in await self._storage.unlearned_episodes(learner.id)}
        return (snapshots | phases) - {b""}

    async def unneeded(self, learner: OwnedLearner, sha256s: Iterable[bytes]) -> set[bytes]:
        """Those objects that no record of a learner refers to, nor will in a moment."""
        # First: what is being recorded now may be so, and be done, before the records are read.
        candidates = set(sha256s) - self._being_recorded(learner.uid)
        return candidates - await self.needed(learner)

    def _being_recorded(self, uid: str) -> set[bytes]:
        return {sha256 for owner, sha256 in tuple(self._unrecorded) if owner == uid}

    async def delete_snapshots(self, learner: OwnedLearner, names: list[str]) -> None:
        """Delete the files of snapshots whose records are gone, and their objects where no other record needs them."""
        await self._thread.run_in_thread(self._folder.delete_snapshots, learner.uid, names)
        if names:
            await self.tidy(learner)

    async def tidy(self, learner: OwnedLearner) -> None:
        """Delete the objects that were referred to and are no more; where that fails, upkeep does it later."""
        if self._objects is None:
            return
        known = self._known.setdefault(learner.uid, set())
        gone = await self.unneeded(learner, known)
        if gone:
            known -= gone
            with contextlib.suppress(ObjectsUnavailable):
                await self._thread.run_in_thread(self.delete, learner.uid, gone)

    async def delete_unneeded(self, learner: OwnedLearner) -> int:
        """Delete every object of a learner that no record refers to, however it came to be; gives how many."""
        if self._objects is None:
            return 0
        listed = await self._thread.run_in_thread(self.listed, learner.uid)
        gone = await self.unneeded(learner, {found.sha256 for found in listed})
        await self._thread.run_in_thread(self.delete, learner.uid, gone)
        return len(gone)

    async def delete_learner(self, uid: str) -> None:
        """Delete all files and objects of a learner that the journal has no more.

        Its folder goes last: as long as it is there, upkeep tries again.
        """
        self._known.pop(uid, None)
        await self._thread.run_in_thread(self._folder.empty_learner, uid)
        with contextlib.suppress(ObjectsUnavailable):
            listed = await self._thread.run_in_thread(self.listed, uid)
            await self._thread.run_in_thread(self.delete, uid, {found.sha256 for found in listed})
            await self._thread.run_in_thread(self._folder.delete_learner, uid)

    async def delete_unknown_learners(self) -> None:
        """Delete what is left of learners that were here, and that the journal has no more."""
        here = await self._thread.run_in_thread(self._folder.learners)
        uids = {row.uid for row in await self._storage.learners()}  # read last: a row comes before its folder
        for uid in here - uids:
            await self.delete_learner(uid)

    def delete(self, uid: str, sha256s: set[bytes]) -> None:
        """Delete objects, in the thread that puts them, but for those that are being put again by now."""
        if self._objects is not None:
            with self.watched():
                self._objects.delete(uid, sha256s - self._being_recorded(uid))

    def stored(self, uid: str, sha256: bytes) -> bool:
        """Whether the store has an object, in a thread."""
        if self._objects is None:
            return False
        with self.watched():
            return self._objects.has(uid, sha256)

    def listed(self, uid: str = "") -> list[StoredObject]:
        """The objects of a learner, or of all, in a thread."""
        if self._objects is None:
            return []
        with self.watched():
            return self._objects.list(uid)


def _is_sound(path: Path, sha256: bytes) -> bool:
    try:
        return sha256_of(path) == sha256
    except FileNotFoundError:
        return False
