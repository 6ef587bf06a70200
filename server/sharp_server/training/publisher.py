"""How a version comes to serve: file in place → loaded off the loop → recorded in the journal → swapped in → tidied.

The order is the promise: nothing serves that is not durable, nobody hears of a version before it serves, and raw
examples go in the very transaction that records what was learned from them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sharp_engine import Learner, Quality
from sharp_server.config.model import ServerConfig
from sharp_server.errors import disk_is_full
from sharp_server.prediction.model import Model, model_of
from sharp_server.prediction.quality import MeasuredVersion, QualityReport, compare, quality_of, to_json
from sharp_server.prediction.summary import Summary
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder, new_name, sha256_of
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import EpisodeRow, NewSnapshot, NewVersion, Published
from sharp_server.training.trainee import Trainee

log = logging.getLogger(__name__)

_WARNED = 10
"""Classes that got worse and are named in the log, per version."""

T = TypeVar("T")

Record = Callable[[NewVersion], Awaitable[Published]]
"""Writes a version into the journal, together with whatever belongs into the same transaction."""


class Publisher:
    """Brings versions to life."""

    def __init__(self, config: ServerConfig, folder: DataFolder, storage: Storage, thread: BackgroundThread) -> None:
        self._config, self._folder, self._storage, self._thread = config, folder, storage, thread

    async def publish_trained(
        self,
        trainee: Trainee,
        episode: EpisodeRow,
        name: str,
        summary: Summary,
        quality: QualityReport,
        statistics: bytes,
    ) -> EpisodeRow:
        """Serve what the trainer made of an episode, and left as the file of that name; gives the learned episode."""
        device, version = self._config.predictor.device, trainee.model.version + 1

        def load(path: Path) -> Model:
            model = model_of(Learner.load(path, device=device), version, summary)  # checks the file's own digest
            return replace(model, quality=quality)

        async def record(new: NewVersion) -> Published:
            learned = replace(new, episode=episode.number)
            return await self.write_with_disk_retry(lambda: self._storage.learned(episode.id, learned, statistics))

        await self._publish(trainee, name, "learned", load, record)
        trainee.release(episode.bytes)
        await self._thread.run_in_thread(self._folder.clear_work, trainee.uid)
        await self.erase_if_possible()
        return replace(
            episode,
            state="learned",
            version=version,
            episodes_learned=summary.episodes,
            statistics=statistics,
            finished_at=time.time(),
        )

    async def publish_changed(self, trainee: Trainee, learner: Learner, cause: str, record: Record) -> Published:
        """Serve a learner that was changed by something else than learning (class forgotten, snapshot restored)."""
        version = trainee.model.version + 1

        def save(path: Path) -> Model:
            learner.save(path, pending=False)
            quality = self.compared(trainee, quality_of(learner))
            return replace(model_of(learner, version), quality=quality)

        return await self._publish(trainee, new_name(version), cause, save, record)

    def compared(self, trainee: Trainee, quality: Quality | None) -> QualityReport:
        """The version that is about to serve, beside the one that serves."""
        now = None if quality is None else MeasuredVersion(trainee.model.version + 1, time.time(), quality)
        return compare(now, trainee.model.quality.now, self._config.quality.fall_points)

    async def _publish(
        self, trainee: Trainee, name: str, cause: str, prepare: Callable[[Path], Model], record: Record
    ) -> Published:
        path = self._folder.snapshot(trainee.uid, name)

        def prepared() -> tuple[Model, int, bytes]:
            model = prepare(path)
            return model, path.stat().st_size, sha256_of(path)

        try:
            model, size, digest = await self._thread.run_in_thread(prepared)
            snapshot = NewSnapshot(
                learner=trainee.id,
                name=name,
                version=model.version,
                episodes=model.episodes,
                classes=json.dumps(model.classes),
                origin="automatic",
                size=size,
                sha256=digest,
            )
            measured = model.quality.now
            published = await record(
                NewVersion(
                    snapshot,
                    cause,
                    self._config.data.automatic_snapshots,
                    quality=None if measured is None else to_json(measured.quality),
                    keep_qualities=self._config.quality.versions,
                )
            )
        except BaseException:
            await asyncio.shield(self._thread.run_in_thread(path.unlink, missing_ok=True))
            raise
        trainee.serve(model, (name, digest))
        _warn(trainee.name, model)
        await self._thread.run_in_thread(self._folder.delete_snapshots, trainee.uid, list(published.replaced))
        return published

    async def erase_if_possible(self) -> None:
        """Leave nothing deleted on disk, unless the disk has no room for that: the next deletion does it."""
        try:
            await self._storage.erase()
        except Exception as error:
            if not disk_is_full(error):
                raise
            log.warning("the write-ahead log could not be emptied yet: %s", error)

    async def write_with_disk_retry(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and wait for room on the disk as long as it takes."""
        while True:
            try:
                return await write()
            except Exception as error:
                if not disk_is_full(error):
                    raise
                await asyncio.sleep(self._config.trainer.retry_seconds)


def _warn(learner: str, model: Model) -> None:
    """Name the classes that got worse."""
    for fall in model.quality.fallen[:_WARNED]:
        before, now = fall.before, fall.now
        log.warning(
            "%s: version %d answers %r worse: %d of %d held-out examples right, before %d of %d",
            *(learner, model.version, str(now.label)[:80], now.right, now.examples, before.right, before.examples),
        )
