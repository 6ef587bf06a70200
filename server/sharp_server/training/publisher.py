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
from sharp_server.config.model import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.learners import events
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.model import Model, load_model, model_of
from sharp_server.runtime.thread_priority import lower_thread_priority
from sharp_server.storage.data_folder import DataFolder, new_name, sha256_of
from sharp_server.storage.sqlite import episodes as ledger_episodes
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.learners import NewSnapshot, NewVersion, SnapshotRow
from sharp_server.storage.sqlite.streams import EpisodeRow

log = logging.getLogger(__name__)

_NICENESS = 19
"""Of the thread that loads versions: on a core that predictions fill, a version comes a second or two later, and they
don't wait for it."""


class Publisher:
    """Brings versions to life. Its thread is the only one that loads learners in the front."""

    def __init__(self, config: ServerConfig, folder: DataFolder, journal: Journal) -> None:
        self._config, self._folder, self._journal = config, folder, journal
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="loader", initializer=lower_thread_priority, initargs=(_NICENESS,)
        )

    async def run_in_thread(self, work: Any, *args: Any) -> Any:
        """Run something heavy in the loader's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def learned(self, served: ServedLearner, episode: EpisodeRow, version: NewVersion, statistics: bytes) -> None:
        """An episode is learned and its file is in place."""
        path = self._folder.snapshot(served.uid, version.snapshot.name)
        try:
            model = await self.run_in_thread(
                load_model, path, version.snapshot.sha256, version.version, self._config.predictor.device
            )
            old = await self.write_with_disk_retry(ledger_episodes.learned, episode.id, version, statistics)
        except Exception:
            path.unlink(missing_ok=True)
            raise
        served.free(episode.bytes)
        served.head = (version.snapshot.name, version.snapshot.sha256)
        served.swap(model)
        await self.run_in_thread(self._tidy, served.uid, old)
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
        served.episodes.pop(episode.number, None)  # together with the event: a producer leaves when none is left
        served.emit(event, episode.stream)
        served.notify()

    def _tidy(self, uid: str, old: list[str]) -> None:
        self._folder.clear_work(uid)
        self._folder.delete_snapshots(uid, old)

    async def write_with_disk_retry(self, work: Any, *args: Any) -> Any:
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
        served: ServedLearner,
        learner: Learner,
        cause: str,
        also: Callable[[sqlite3.Connection], Any] = lambda connection: None,
        at_once: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make a changed learner (class forgotten, snapshot restored) the version that serves.

        `also` is done in the same transaction, and its result returned; `at_once` when that is queued.
        """
        version = served.model.version + 1
        name = new_name(version)
        path = self._folder.snapshot(served.uid, name)

        def prepare() -> tuple[Model, bytes, int]:
            learner.save(path, pending=False)
            return model_of(learner, version), sha256_of(path), path.stat().st_size

        model, digest, size = await self.run_in_thread(prepare)
        snapshot = NewSnapshot(
            learner=served.id,
            name=name,
            version=version,
            episodes=model.episodes,
            classes=ledger_classes(model),
            origin="automatic",
            size=size,
            sha256=digest,
        )
        new = NewVersion(snapshot, cause, self._config.data.automatic_snapshots)

        def record(connection: sqlite3.Connection) -> tuple[Any, list[str]]:
            return also(connection), ledger_learners.publish(connection, new)

        at_once()
        try:
            result, old = await self._journal.write(record)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        served.head = (name, digest)
        served.swap(model)
        await self.run_in_thread(self._folder.delete_snapshots, served.uid, old)
        return result

    async def load(self, served: ServedLearner, row: SnapshotRow) -> Model:
        """The model of a stored snapshot."""
        path = self._folder.snapshot(served.uid, row.name)
        model: Model = await self.run_in_thread(
            load_model, path, row.sha256, row.version, self._config.predictor.device
        )
        return model


def ledger_classes(model: Model) -> str:
    """A model's classes as the journal keeps them."""
    return json.dumps(model.classes)
