"""Lessons become versions: a while after they were taught, before a snapshot is made, when the server stops.

No answer changes by it, to the last bit: what is saved is just what was taught. So when it happens is a matter of how
long raw examples of lessons may live, and of nothing else. Where an episode waits or is being learned, its version
takes the lessons in; lessons that came after examples of an open episode wait for that episode too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sharp_server.config.model import TeachingConfig
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.publisher import Publisher
from sharp_server.training.trainee import Trainee

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds between two tries that failed."""


class TaughtTrainee(Trainee, Protocol):
    """A learner whose lessons may become a version."""

    def consolidating(self) -> AbstractAsyncContextManager[bool]:
        """Keep training and changes away meanwhile; False: there is something of that kind already."""
        ...


class Consolidation:
    """Looks now and then whose lessons are due; belongs to the event loop."""

    def __init__(
        self,
        config: TeachingConfig,
        teaching: Teaching,
        publisher: Publisher,
        learners: Iterable[TaughtTrainee],
        wake_trainer: Callable[[], None],
    ) -> None:
        self._config, self._teaching, self._publisher, self._learners = config, teaching, publisher, learners
        self._wake_trainer = wake_trainer
        self._task: asyncio.Task[None] | None = None
        self._pause = _SECONDS_BETWEEN_LOOKS

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="consolidation")

    async def stop(self, seconds: float) -> None:
        """Make versions of what was taught, if that is done in so many seconds: the journal keeps the rest."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for served in list(self._learners):
                    await self._try(served)

    async def consolidate(self, served: TaughtTrainee) -> bool:
        """Make a version of the lessons that came before any batch, if there are any; False: nothing was done."""
        if not self._teaching.lessons(served):
            return False
        async with served.consolidating() as free:
            if not free or not await self._publisher.publish_taught(served):
                return False
        self._wake_trainer()  # an episode may have been closed meanwhile
        log.info("%s: lessons became part of version %d", served.name, served.model.version)
        return True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            for served in list(self._learners):
                if not self._due(served):
                    continue
                if await self._try(served):
                    self._pause = _SECONDS_BETWEEN_LOOKS
                else:
                    await asyncio.sleep(self._pause)
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _due(self, served: TaughtTrainee) -> bool:
        count = self._teaching.lessons(served)
        age = time.monotonic() - self._teaching.oldest_lesson(served)
        return bool(count) and (count >= self._config.version_lessons or age >= self._config.version_seconds)

    async def _try(self, served: TaughtTrainee) -> bool:
        """False: it failed. A full disk or a store that is gone, most likely: the lessons stay where they are."""
        try:
            await self.consolidate(served)
        except Exception as error:
            log.warning("%s: lessons could not be made part of a version yet: %s", served.name, error)
            return False
        return True
