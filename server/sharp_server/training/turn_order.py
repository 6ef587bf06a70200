"""Whose turn it is: the learner that was given the least time, among those with something to learn.

Time and not turns, because phases differ by orders of magnitude: a small episode is learned while a large one waits for
the time it had already, and the large one gets its share all the same. Nobody saves up time by having nothing to learn.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from sharp_server.training.trainee import Trainee


@dataclass
class Standing:
    """Where a learner stands."""

    spent: float = 0.0
    """Seconds it was given; of one that had nothing to learn, at least what the least served one was given."""
    waiting: bool = False
    """Whether it had something to learn when the order was looked at last."""
    not_before: float = 0.0
    """Training waits until then (monotonic), after a failure."""
    left: int | None = None
    """The episode that it left for others after a phase, by id."""
    in_memory: bool = False
    """Whether the trainer keeps the learner as it was then."""

    def leave(self, episode: int, in_memory: bool) -> None:
        """It left an episode after a phase."""
        self.left, self.in_memory = episode, in_memory

    def start_over(self) -> None:
        """Nothing that it had begun counts any more."""
        self.left, self.in_memory = None, False


class TurnOrder:
    """The order of turns; belongs to the event loop."""

    def __init__(self, trainees: Iterable[Trainee]) -> None:
        self._trainees = trainees
        self._standings: weakref.WeakKeyDictionary[Trainee, Standing] = weakref.WeakKeyDictionary()
        self._clock = 0.0
        """The time that the learner had been given whose turn came last."""

    def of(self, trainee: Trainee) -> Standing:
        """Where one stands."""
        return self._standings.setdefault(trainee, Standing())

    def ready(self) -> list[Trainee]:
        """Learners with an episode to learn, the one whose turn comes next first."""
        now, ready = time.monotonic(), []
        for trainee in self._trainees:
            standing = self.of(trainee)
            is_ready = standing.not_before <= now and trainee.next_episode() is not None
            if is_ready and not standing.waiting:
                standing.spent = max(standing.spent, self._clock)
            standing.waiting = is_ready
            if is_ready:
                ready.append(trainee)
        return sorted(ready, key=lambda trainee: self.of(trainee).spent)

    def begin(self, trainee: Trainee) -> None:
        """Its turn begins."""
        self._clock = max(self._clock, self.of(trainee).spent)

    def charge(self, trainee: Trainee, seconds: float) -> None:
        """Its turn took so long."""
        self.of(trainee).spent += seconds

    def defer(self, trainee: Trainee, seconds: float) -> None:
        """It waits so long before its next turn."""
        self.of(trainee).not_before = time.monotonic() + seconds

    def trainer_ended(self) -> None:
        """What was kept in its memory is gone."""
        for standing in self._standings.values():
            standing.start_over()
