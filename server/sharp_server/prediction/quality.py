"""How good a version is: plain values from the engine's figures, kept with the version and compared with the next.

Measured on held-out examples: each is answered as if it had never been learned. Few of them scatter, so a class counts
as fallen only if chance does not explain it. It never holds an example.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from sharp_engine import Label, Learner

_CONFUSIONS = 20
"""Pairs of classes that are kept, most frequent first."""

_DEVIATIONS = 2.0
"""A fall of fewer standard errors than this may be chance."""


@dataclass(frozen=True)
class ClassQuality:
    """How the held-out examples of one class are answered."""

    label: Label
    examples: int
    right: int

    @property
    def accuracy(self) -> float:
        """Share that is right."""
        return self.right / self.examples


@dataclass(frozen=True)
class Confusion:
    """Held-out examples of one class that are answered with another."""

    label: Label
    answered: Label
    examples: int


@dataclass(frozen=True)
class Quality:
    """One version, measured."""

    classes: tuple[ClassQuality, ...]
    """Worst first; those without a held-out example are not among them."""
    confusions: tuple[Confusion, ...]
    """Most frequent first."""

    @property
    def examples(self) -> int:
        """Held-out examples in all."""
        return sum(entry.examples for entry in self.classes)

    @property
    def right(self) -> int:
        """Those of them that are answered right."""
        return sum(entry.right for entry in self.classes)

    @property
    def accuracy(self) -> float:
        """Share that is right."""
        return self.right / self.examples

    def to_json(self) -> str:
        """For the journal."""
        classes = [[entry.label, entry.examples, entry.right] for entry in self.classes]
        confusions = [[pair.label, pair.answered, pair.examples] for pair in self.confusions]
        return json.dumps({"classes": classes, "confusions": confusions}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Quality:
        """From the journal."""
        found = json.loads(text)
        return cls(
            tuple(ClassQuality(*entry) for entry in found["classes"]),
            tuple(Confusion(*pair) for pair in found["confusions"]),
        )


@dataclass(frozen=True)
class MeasuredVersion:
    """A version and how good it is."""

    version: int
    created: float
    quality: Quality


@dataclass(frozen=True)
class Fall:
    """A class that got worse from one version to the next."""

    before: ClassQuality
    now: ClassQuality

    @property
    def points(self) -> float:
        """By how many points of a hundred."""
        return 100.0 * (self.before.accuracy - self.now.accuracy)


@dataclass(frozen=True)
class QualityReport:
    """A version beside the one before it."""

    now: MeasuredVersion | None = None
    before: MeasuredVersion | None = None
    fallen: tuple[Fall, ...] = ()
    """Worst first."""


def quality_of(learner: Learner) -> Quality | None:
    """How good a learner is; none where it holds too few examples to say."""
    measured = learner.quality()
    if measured is None:
        return None
    classes = [ClassQuality(entry.label, entry.examples, entry.right) for entry in measured.classes if entry.examples]
    if not classes:
        return None
    pairs = [Confusion(pair.label, pair.answered, pair.examples) for pair in measured.confusions]
    return Quality(
        tuple(sorted(classes, key=lambda entry: (entry.accuracy, -entry.examples, str(entry.label)))),
        tuple(sorted(pairs, key=lambda pair: (-pair.examples, str(pair.label), str(pair.answered)))[:_CONFUSIONS]),
    )


def compare(now: MeasuredVersion | None, before: MeasuredVersion | None, points: float) -> QualityReport:
    """A version beside the one before it; a class has fallen if it lost more than so many points, and not by chance."""
    fallen: list[Fall] = []
    if now is not None and before is not None:
        then = {entry.label: entry for entry in before.quality.classes}
        falls = [Fall(then[entry.label], entry) for entry in now.quality.classes if entry.label in then]
        fallen = [fall for fall in falls if fall.points > points and not _is_chance(fall)]
    return QualityReport(now, before, tuple(sorted(fallen, key=lambda fall: -fall.points)))


def _is_chance(fall: Fall) -> bool:
    """Whether two samples of the same accuracy might differ by as much: of its pooled estimate, held off 0 and 1."""
    before, now = fall.before, fall.now
    share = (before.right + now.right + 1) / (before.examples + now.examples + 2)
    error = math.sqrt(share * (1 - share) * (1 / before.examples + 1 / now.examples))
    return before.accuracy - now.accuracy <= _DEVIATIONS * error
