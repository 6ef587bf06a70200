"""How a version comes to serve: file in place → row in the journal → loaded off the loop → swapped in → told.

The order is the promise: nothing serves that is not durable, nobody hears of a version before it serves, and raw
examples go in the very transaction that records what was learned from them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sharp_engine import Learner
from sharp_server import events, ledger_episodes, ledger_learners
from sharp_server.config import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.folders import DataFolder, new_name, sha256_of
from sharp_server.journal import Journal
from sharp_server.ledger_ingest import EpisodeRow
from sharp_server.ledger_learners import NewSnapshot, NewVersion, SnapshotRow
from sharp_server.models import Model, load_model, model_of
from sharp_server.priority import give_way
from sharp_server.registry import Owned

log = logging.getLogger(__name__)

_NICENESS = 19
"""Of the thread that loads versions: on a core that predictions fill, a version comes a second or two later, and they
don't wait for it."""


class Publisher:
    """Brings versions to life. Its thread is the only one that loads learners in the front."""

    def __init__(self, config: ServerConfig, folder: DataFolder, journal: Journal) -> None:
        self._config, self._folder, self._journal = config, folder, journal
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader", initializer=give_way, initargs=(_NICENESS,))

    async def off_loop(self, work: Any, *args: Any) -> Any:
        """Run something heavy in the loader's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def learned(self, owned: Owned, episode: EpisodeRow, version: NewVersion, statistics: bytes) -> None:
        """An episode is learned and its file is in place."""
        path = self._folder.snapshot(owned.uid, version.snapshot.name)
        try:
            model = await self.off_loop(
                load_model, path, version.snapshot.sha256, version.version, self._config.predictor.device
            )
            old = await self.patiently(ledger_episodes.learned, episode.id, version, statistics)
        except Exception:
            path.unlink(missing_ok=True)
            raise
        owned.free(episode.bytes)
        owned.head = (version.snapshot.name, version.snapshot.sha256)
        owned.swap(model)
        await self.off_loop(self._tidy, owned.uid, old)
        try:
            await self._journal.erase()
        except Exception as error:
            if not disk_is_full(error):
                raise
            log.warning("the write-ahead log could not be emptied yet: %s", error)
        done = replace(
            episode,
            state="learned",
            version=version.version,
            episodes_learned=version.episodes,
            statistics=statistics,
            settled=time.time(),
        )
        event = events.settled(done)
        assert event is not None
        owned.episodes.pop(episode.number, None)  # together with the event: a producer leaves when none is left
        owned.emit(event, episode.stream)
        owned.tell()

    def _tidy(self, uid: str, old: list[str]) -> None:
        self._folder.clear_work(uid)
        self._folder.delete_snapshots(uid, old)

    async def patiently(self, work: Any, *args: Any) -> Any:
        """Write, and wait for room on the disk as long as it takes."""
        while True:
            try:
                return await self._journal.write(work, *args)
            except Exception as error:
                if not disk_is_full(error):
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)

    async def publish(
        self,
        owned: Owned,
        learner: Learner,
        cause: str,
        also: Callable[[sqlite3.Connection], Any] = lambda connection: None,
        at_once: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make a changed learner (class forgotten, snapshot restored) the version that serves.

        `also` is done in the same transaction, and its result returned; `at_once` when that is queued.
        """
        version = owned.model.version + 1
        name = new_name(version)
        path = self._folder.snapshot(owned.uid, name)

        def prepare() -> tuple[Model, bytes, int]:
            learner.save(path, pending=False)
            return model_of(learner, version), sha256_of(path), path.stat().st_size

        model, digest, size = await self.off_loop(prepare)
        snapshot = NewSnapshot(
            learner=owned.id,
            name=name,
            version=version,
            episodes=model.episodes,
            classes=ledger_classes(model),
            origin="automatic",
            size=size,
            sha256=digest,
        )
        new = NewVersion(snapshot, cause, self._config.data.snapshots_kept)

        def record(connection: sqlite3.Connection) -> tuple[Any, list[str]]:
            return also(connection), ledger_learners.publish(connection, new)

        at_once()
        try:
            result, old = await self._journal.write(record)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        owned.head = (name, digest)
        owned.swap(model)
        await self.off_loop(self._folder.delete_snapshots, owned.uid, old)
        return result

    async def load(self, owned: Owned, row: SnapshotRow) -> Model:
        """The model of a stored snapshot."""
        path = self._folder.snapshot(owned.uid, row.name)
        model: Model = await self.off_loop(load_model, path, row.sha256, row.version, self._config.predictor.device)
        return model


def ledger_classes(model: Model) -> str:
    """A model's classes as the journal keeps them."""
    return json.dumps(model.classes)
