"""How good a version is: plain values from the engine's figures, kept with the version and compared with the next.

Measured on held-out examples: each is answered as if it had never been learned. Few of them scatter, so a class counts
as fallen only if chance does not explain it. It never holds an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from sharp_engine import ClassQuality, Confusion, Label, Learner, Quality

_CONFUSIONS = 20
"""Pairs of classes that are kept, most frequent first."""

_DEVIATIONS = 2.0
"""A fall of fewer standard errors than this may be chance."""


@dataclass(frozen=True)
class MeasuredVersion:
    """A version and how good it is."""

    version: int
    created: float
    quality: Quality
    """Classes worst first, the most frequent confusions only."""

    def of_classes(self, labels: Collection[Label]) -> MeasuredVersion:
        """Of these alone: a class that was forgotten is named by nothing any more."""
        classes = tuple(entry for entry in self.quality.classes if entry.label in labels)
        pairs = tuple(pair for pair in self.quality.confusions if pair.truth in labels and pair.answered in labels)
        return replace(self, quality=Quality(classes, pairs))

    @property
    def right(self) -> int:
        """Held-out examples that are answered right."""
        return sum(entry.right for entry in self.quality.classes)


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
    """How good a learner is, worst class first; none where it holds too few examples to say."""
    measured = learner.quality()
    if measured is None:
        return None
    worst_first = sorted(measured.classes, key=lambda entry: (entry.accuracy, -entry.examples))
    return Quality(tuple(worst_first), measured.confusions[:_CONFUSIONS])


def to_json(quality: Quality) -> str:
    """For the journal."""
    classes = [[entry.label, entry.examples, entry.right] for entry in quality.classes]
    confusions = [[pair.truth, pair.answered, pair.count] for pair in quality.confusions]
    return json.dumps({"classes": classes, "confusions": confusions}, separators=(",", ":"))


def from_json(text: str) -> Quality:
    """From the journal."""
    found = json.loads(text)
    return Quality(
        tuple(ClassQuality(*entry) for entry in found["classes"]),
        tuple(Confusion(*pair) for pair in found["confusions"]),
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
