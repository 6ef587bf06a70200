"""What a demo found: figures after each episode, and its promises with what became of them. Plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST_ACCURACY = 0.95
"""What the learner must still get right of all classes after the last episode."""


@dataclass(frozen=True)
class Episode:
    """After one episode."""

    classes: tuple[int, ...]
    """What it brought."""
    examples: int
    seconds: float
    """The trainer's, for this episode."""
    sharp: float
    """Accuracy of the learner on all classes seen so far."""
    plain: float
    """The same of the plain network."""
    sharp_by_class: Mapping[int, float]
    plain_by_class: Mapping[int, float]


@dataclass(frozen=True)
class Promise:
    """One thing that must hold, and how it was seen."""

    what: str
    holds: bool
    seen: str


@dataclass
class Record:
    """A whole run."""

    architecture: str = ""
    test_examples: int = 0
    episodes: list[Episode] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    forgotten: int | None = None
    accuracy_of_the_others: float = 0.0
    """After forgetting, on all classes but the forgotten one."""
    seconds: float = 0.0

    @property
    def kept_all(self) -> bool:
        """Whether every promise held."""
        return bool(self.promises) and all(promise.holds for promise in self.promises)

    @property
    def classes(self) -> list[int]:
        """All classes, in the order in which they came."""
        return [label for episode in self.episodes for label in episode.classes]

    def promise(self, what: str, holds: bool, seen: str) -> Promise:
        """Note what became of a promise."""
        promise = Promise(what, holds, seen)
        self.promises.append(promise)
        return promise


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.9814)
    '98.1 %'
    """
    return f"{100 * share:.1f} %"
