"""What follows from a turn of training: a version is published, or the episode is tried again or parked.

An episode is tried a bounded number of times, and set aside with its reason then: no crash loop. A full disk is no
fault of the episode.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import replace

from sharp_engine import EpisodeReport
from sharp_server.config.model import TrainerConfig
from sharp_server.errors import ObjectsUnavailable
from sharp_server.prediction.quality import QualityReport
from sharp_server.prediction.summary import Summary
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.interface import Storage
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.protocol import Died, Failed, Learned, Outcome, Stopped, Yielded
from sharp_server.training.publisher import Content, Publisher
from sharp_server.training.trainee import Trainee
from sharp_server.training.turn import TrainingTurn

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0
"""Seconds between two tries to find room on a full disk, at most."""

Statistics = Callable[[EpisodeReport, Summary, QualityReport], bytes]
"""What the journal keeps about learning an episode, as a message of the wire."""


class Aftermath:
    """Does what follows from outcomes."""

    def __init__(
        self,
        config: TrainerConfig,
        files: VersionFiles,
        storage: Storage,
        publisher: Publisher,
        metrics: Metrics,
        statistics: Statistics,
        teaching: Teaching,
    ) -> None:
        self._config, self._files, self._storage, self._publisher = config, files, storage, publisher
        self._metrics, self._statistics, self._teaching = metrics, statistics, teaching
        self._full_disks: weakref.WeakKeyDictionary[Trainee, int] = weakref.WeakKeyDictionary()
        """Tries in a row whose outcome did not fit the disk."""

    async def follow(self, turn: TrainingTurn, outcome: Outcome, stopping: bool) -> float:
        """Do it; gives the seconds for which the learner waits before its next turn."""
        if isinstance(outcome, Learned):
            try:
                await self._learned(turn, outcome)
            except ObjectsUnavailable:  # and somebody wants to change the learner now: it is learned again after that
                await self._publisher.write_with_disk_retry(lambda: self._storage.excuse(turn.episode.id))
                return self._config.retry_seconds
            return 0.0
        if isinstance(outcome, Stopped | Yielded) or turn.paused or stopping:
            return 0.0
        if isinstance(outcome, Failed) and outcome.reason == "DISK_FULL":
            return await self._no_room(turn, outcome.detail)
        return await self._failed(turn, outcome)

    async def _learned(self, turn: TrainingTurn, outcome: Learned) -> None:
        trainee, report = turn.trainee, outcome.report
        quality = self._publisher.compared(trainee, outcome.quality, outcome.summary.labels)
        statistics = self._statistics(report, outcome.summary, quality)
        learned = await self._publisher.publish_trained(
            trainee, turn.episode, turn.snapshot, Content(outcome.summary, quality, outcome.sha256), statistics
        )
        trainee.update_episode(learned)
        self._full_disks.pop(trainee, None)
        self._metrics.examples_learned.inc(report.examples)
        log.info(
            "%s learned episode %d as version %d: %d examples in %.1f s",
            *(trainee.name, learned.number, learned.version, report.examples, report.seconds),
        )

    async def _no_room(self, turn: TrainingTurn, detail: str) -> float:
        """What was learned does not fit the disk, or the journal can't be read: no fault of the episode, which is
        learned again, ever less often.
        """
        await self._publisher.write_with_disk_retry(lambda: self._storage.excuse(turn.episode.id))
        tries = self._full_disks[turn.trainee] = self._full_disks.get(turn.trainee, 0) + 1
        pause = min(self._config.retry_seconds * 2.0**tries, _LONGEST_PAUSE)
        log.warning("%s: no room on the disk, or no journal (%s); again in %.1f s", turn.trainee.name, detail, pause)
        return pause

    async def _failed(self, turn: TrainingTurn, outcome: Failed | Died) -> float:
        trainee, trainer = turn.trainee, self._config
        failed = outcome if isinstance(outcome, Failed) else None
        start_over = failed is not None  # a failure would only repeat itself from the same phase
        attempts = await self._publisher.write_with_disk_retry(lambda: self._storage.fail(turn.episode.id, start_over))
        turn.episode = replace(turn.episode, attempts=attempts)
        trainee.update_episode(turn.episode)
        reason = failed.reason if failed is not None else "TRAINER_DIED"
        log.warning("%s: try %d of episode %d: %s", trainee.name, attempts, turn.episode.number, outcome.detail)
        self._metrics.training_failures.labels(reason).inc()
        if attempts >= trainer.attempts or (failed is not None and failed.lasting):
            await self.park(turn, reason, outcome.detail)
            return 0.0
        if start_over:
            await self._files.clear_work(trainee)
        return trainer.retry_seconds

    async def park(self, turn: TrainingTurn, reason: str, detail: str) -> None:
        """Set the episode aside with its reason: an operator decides."""
        trainee = turn.trainee
        await self._files.clear_work(trainee)
        async with self._teaching.held(trainee):  # its examples count no more
            episode = await self._publisher.write_with_disk_retry(
                lambda: self._storage.park(turn.episode.id, reason, detail)
            )
            trainee.update_episode(episode)
        log.warning("%s: episode %d is parked: %s: %s", trainee.name, episode.number, reason, detail)
