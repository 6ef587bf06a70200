"""One turn of training: an episode that the trainer is at, what was heard of it last, and what came of it.

A turn ends with its episode, or after a phase for another learner's sake; the episode has another turn then.
"""

from __future__ import annotations

import asyncio
import time

from sharp_server.storage.records import EpisodeRow
from sharp_server.training.protocol import Outcome
from sharp_server.training.trainee import Trainee


class TrainingTurn:
    """Belongs to the scheduler; an outcome is set once, and being over is final."""

    def __init__(self, trainee: Trainee, episode: EpisodeRow, snapshot: str, goes_on: bool = False) -> None:
        self.trainee, self.episode, self.snapshot = trainee, episode, snapshot
        self.goes_on = goes_on
        """Whether the episode had a turn before, and left after a phase."""
        self.may_be_asked_to_yield = False
        """From the moment in which the trainer has it, until it was asked."""
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._heard = time.monotonic()
        self._paused = False
        self._over = asyncio.Event()

    @property
    def paused(self) -> bool:
        """Whether somebody asked the trainer to leave the episode."""
        return self._paused

    def pause(self) -> None:
        """Somebody wants to change the learner."""
        self._paused = True

    def hear(self) -> None:
        """The trainer is alive."""
        self._heard = time.monotonic()

    def conclude(self, outcome: Outcome) -> None:
        """The trainer is done with it; the first outcome counts."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def outcome(self, silence: float) -> Outcome | None:
        """What came of it; None if nothing was heard for so many seconds."""
        while True:
            quiet = time.monotonic() - self._heard
            if quiet >= silence and not self._outcome.done():
                return None
            try:
                return await asyncio.wait_for(asyncio.shield(self._outcome), max(0.05, silence - quiet))
            except TimeoutError:
                continue

    async def ended(self) -> Outcome:
        """What came of it, however long that takes."""
        return await self._outcome

    def end(self) -> None:
        """Everything that follows from the outcome is done."""
        self._over.set()

    async def over(self) -> None:
        """Until then."""
        await self._over.wait()
