"""Keeps the object store and the data folder in step, now and then: puts what it lacks, deletes what nobody needs, and
keeps the cache within its bound.

What a crash left in the store is deleted only when it is old: what another machine has just put may not be recorded
yet. Must never delete the last copy of anything that the journal lists, nor objects of learners that were never here:
a server that starts with an empty journal leaves a full bucket as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sharp_server.errors import ObjectsUnavailable
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.interface import Storage
from sharp_server.storage.objects import DamagedObjectError
from sharp_server.storage.version_files import OwnedLearner, VersionFiles

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_ROUNDS = 3600.0
_SECONDS_BETWEEN_LOOKS = 10.0
"""Whether the cache is within its bound, and whether the store could not be reached: then it is tried again."""


class CachedLearner(OwnedLearner, Protocol):
    """A learner of this server, and what it serves."""

    @property
    def head(self) -> tuple[str, bytes] | None:
        """Name and SHA-256 of the snapshot that serves."""
        ...


class ObjectUpkeep:
    """Looks after the objects of this server's learners; belongs to the event loop."""

    def __init__(
        self,
        files: VersionFiles,
        storage: Storage,
        learners: Iterable[CachedLearner],
        thread: BackgroundThread,
        cache_bytes: int,
        grace_seconds: float,
    ) -> None:
        self._files, self._storage, self._learners, self._thread = files, storage, learners, thread
        self._cache_bytes, self._grace_seconds = cache_bytes, grace_seconds
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; without an object store there is nothing to do."""
        if self._files.remote:
            self._tasks.append(asyncio.get_running_loop().create_task(self._rounds(), name="object upkeep"))
            if self._cache_bytes:
                self._tasks.append(asyncio.get_running_loop().create_task(self._looks(), name="cache bound"))

    async def stop(self) -> None:
        """End it; whatever was not done is done after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _rounds(self) -> None:
        while True:
            try:
                await self._files.until_reached(self.round)
            except Exception:
                log.exception("the object store could not be looked after")
            due = time.monotonic() + _SECONDS_BETWEEN_ROUNDS
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            while time.monotonic() < due and not self._files.failure:
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def _looks(self) -> None:
        while True:
            try:
                await self.trim()
            except Exception:
                log.exception("the cache could not be looked after")
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def round(self) -> None:
        """Put what is recorded and not in the store, and delete what is in the store, old and not recorded."""
        listed: dict[str, dict[bytes, float]] = defaultdict(dict)
        for found in await self._thread.run_in_thread(self._files.listed):
            listed[found.uid][found.sha256] = found.modified
        own = list(self._learners)
        for learner in own:
            await self._put_missing(learner, set(listed[learner.uid]))
        oldest_kept, swept = time.time() - self._grace_seconds, 0
        for learner in own:
            old = {sha256 for sha256, modified in listed[learner.uid].items() if modified < oldest_kept}
            gone = await self._files.unneeded(learner, old)
            await self._thread.run_in_thread(self._files.delete, learner.uid, gone)
            swept += len(gone)
        await self._files.delete_unknown_learners()
        if swept:
            log.info("%d objects that nothing refers to were deleted", swept)

    async def _put_missing(self, learner: CachedLearner, stored: set[bytes]) -> None:
        for row in await self._storage.snapshots(learner.id):
            if row.sha256 in stored or row.damaged:
                continue
            path = self._files.path(learner.uid, row.name)
            with contextlib.suppress(DamagedObjectError, FileNotFoundError):  # whoever loads it finds that, and says so
                async with self._files.recording(learner.uid, path, row.sha256):
                    stored.add(row.sha256)

    async def trim(self) -> None:
        """Drop files that were not used for long, and are in the store, until the cache is within its bound."""
        files: list[tuple[str, bytes, Path]] = []
        for learner in list(self._learners):
            rows = await self._storage.snapshots(learner.id)
            files += [(learner.uid, row.sha256, self._files.path(learner.uid, row.name)) for row in rows]
        serving = {
            self._files.path(learner.uid, learner.head[0]) for learner in self._learners if learner.head is not None
        }
        with contextlib.suppress(ObjectsUnavailable):
            await self._thread.run_in_thread(self._trim, files, serving)

    def _trim(self, files: list[tuple[str, bytes, Path]], serving: set[Path]) -> None:
        found = []
        for uid, sha256, path in files:
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_atime, stat.st_size, uid, sha256, path))
        taken = sum(size for _, size, *_ in found)
        for _, size, uid, sha256, path in sorted(found):
            if taken <= self._cache_bytes:
                return
            if path not in serving and self._files.stored(uid, sha256):
                path.unlink(missing_ok=True)
                taken -= size
                log.info("%s left the cache", path.name)
