"""What an operator may do about an episode that could not be learned: have it tried again, or give it up."""

from __future__ import annotations

from sharp_server.learners import events
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import EpisodeRow
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.scheduler import Scheduler


class ParkedEpisodes:
    """Decides about parked episodes."""

    def __init__(self, storage: Storage, scheduler: Scheduler, metrics: Metrics, teaching: Teaching) -> None:
        self._storage, self._scheduler, self._metrics, self._teaching = storage, scheduler, metrics, teaching

    async def retry(self, served: ServedLearner, number: int) -> EpisodeRow:
        """Put a parked episode at the end of the queue."""
        async with self._teaching.held(served):  # its examples count again
            episode = await self._storage.retry(served.id, number)
            served.update_episode(episode)
        self._scheduler.wake()
        return episode

    async def discard(self, served: ServedLearner, number: int) -> EpisodeRow:
        """Give up a parked episode; its examples are gone from the disk when this returns."""
        episode = await self._storage.discard(served.id, number)
        await self._storage.erase()
        served.backlog.drop(episode)
        self._metrics.discarded.inc()
        served.emit(events.discarded(episode, "operator"), episode.stream)
        served.notify()
        return episode
