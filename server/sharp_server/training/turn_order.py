"""Whose turn it is: the episode that would be done first if all learners were trained at once, each as fast.

That is fair queueing by virtual time, which passes as fast as each of the learners with something to learn would get
on. A small episode passes a large one, which gets its share all the same; of equal ones the first is finished before
the next begins; many episodes of one learner do not crowd out another's. How long an episode takes is guessed from its
work and from how fast others went, and corrected by what the trainer says. Nobody saves up time by having nothing to
learn.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sharp_server.storage.records import EpisodeRow
from sharp_server.training.trainee import Trainee

_FIRST_PACE = 1e-4
"""Seconds per unit of work, before any episode was learned."""


@dataclass
class Standing:
    """Where a learner stands with the episode that it is to learn next."""

    episode: int | None = None
    """By id."""
    work: float = 1.0
    start: float = 0.0
    """Virtual time from which it counts."""
    estimate: float | None = None
    """Seconds that it takes in all, once the trainer has said so."""
    spent: float = 0.0
    """Seconds that it was given."""
    pace: float | None = None
    """Seconds per unit of work of the learner's latest episode."""
    waiting: bool = False
    """Whether it had something to learn when the order was looked at last."""
    not_before: float = 0.0
    """Training waits until then (monotonic), after a failure."""
    left: int | None = None
    """The episode that it left for others after a phase, by id."""
    in_memory: bool = False
    """Whether the trainer keeps the learner as it was then."""

    def finish(self, pace: float) -> float:
        """Virtual time at which it would be done; `pace` of others, where nothing is known of its own."""
        guess = self.work * (self.pace or pace) if self.estimate is None else self.estimate
        return self.start + max(guess, self.spent)

    def leave(self, episode: int, in_memory: bool) -> None:
        """It left an episode after a phase."""
        self.left, self.in_memory = episode, in_memory

    def start_over(self) -> None:
        """Nothing that it had begun counts any more."""
        self.left, self.in_memory = None, False


def work_of(trainee: Trainee, episode: EpisodeRow) -> float:
    """How much an episode is to learn: examples that pass through training, each time counted."""
    training = trainee.config.training
    steps = -(-episode.examples // training.batch_size)
    epochs = max(training.epochs, -(-training.min_steps // max(1, steps)))
    return float(max(1, training.phases) * epochs * episode.examples)


class TurnOrder:
    """The order of turns; belongs to the event loop."""

    def __init__(
        self,
        trainees: Iterable[Trainee],
        work: Callable[[Trainee, EpisodeRow], float] = work_of,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._trainees, self._work, self._clock = trainees, work, clock or time.monotonic
        self._standings: weakref.WeakKeyDictionary[Trainee, Standing] = weakref.WeakKeyDictionary()
        self._virtual, self._looked, self._active = 0.0, self._clock(), 0
        self._pace = _FIRST_PACE
        self._turn_began = 0.0

    def of(self, trainee: Trainee) -> Standing:
        """Where one stands."""
        return self._standings.setdefault(trainee, Standing())

    def ready(self) -> list[Trainee]:
        """Learners with an episode to learn, the one whose turn comes next first."""
        now, ready = self._clock(), []
        if self._active:
            self._virtual += (now - self._looked) / self._active
        else:  # nobody is owed anything from before
            self._virtual = max(
                [self._virtual, *(standing.finish(self._pace) for standing in self._standings.values())]
            )
        self._looked = now
        for trainee in self._trainees:
            standing, episode = self.of(trainee), trainee.next_episode()
            standing.waiting = standing.not_before <= now and episode is not None
            if standing.waiting and episode is not None:
                self._queue(trainee, standing, episode)
                ready.append(trainee)
        self._active = len(ready)
        return sorted(ready, key=lambda trainee: self.of(trainee).finish(self._pace))

    def _queue(self, trainee: Trainee, standing: Standing, episode: EpisodeRow) -> None:
        if standing.episode == episode.id:
            return
        standing.start = max(self._virtual, standing.finish(self._pace) if standing.episode is not None else 0.0)
        standing.episode, standing.spent, standing.estimate = episode.id, 0.0, None
        standing.work = self._work(trainee, episode)

    def has_precedence_over(self, trainee: Trainee) -> bool:
        """Whether somebody else's turn would come before this learner's, if it ended now."""
        ready, standing = self.ready(), self.of(trainee)
        now = replace(standing, spent=standing.spent + self._clock() - self._turn_began)
        finish = now.finish(self._pace)
        return any(other is not trainee and self.of(other).finish(self._pace) < finish for other in ready)

    def begin(self) -> None:
        """A turn begins."""
        self._turn_began = self._clock()

    def follow(self, trainee: Trainee, seconds_left: float | None) -> None:
        """The trainer says how long the episode will take."""
        if seconds_left is not None:
            standing = self.of(trainee)
            standing.estimate = standing.spent + self._clock() - self._turn_began + seconds_left
            standing.pace = self._pace = standing.estimate / standing.work

    def end(self, trainee: Trainee, learned: bool) -> None:
        """Its turn is over."""
        standing = self.of(trainee)
        standing.spent += self._clock() - self._turn_began
        if learned:
            standing.estimate = standing.spent
            standing.pace = self._pace = standing.spent / standing.work

    def defer(self, trainee: Trainee, seconds: float) -> None:
        """It waits so long before its next turn."""
        self.of(trainee).not_before = self._clock() + seconds

    def trainer_ended(self) -> None:
        """What was kept in its memory is gone."""
        for standing in self._standings.values():
            standing.start_over()
