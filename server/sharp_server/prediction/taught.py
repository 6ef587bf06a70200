"""What is known beyond a version: the learner of its snapshot, taught everything that arrived since, in order.

It is a pure function of the version and the arrivals in the journal's order, so it can be made again at any time, the
same to the last bit. Used by one thread at a time, never by the event loop and never by the predictor's thread; what it
gives out (predictors, copies) is immutable.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sharp_engine import Label, Learner, NothingLearnedError, Predictor
from sharp_engine.labels import Labels
from sharp_server.prediction.summary import Summary, summarize

Examples = NDArray[Any]


@dataclass(frozen=True)
class Known:
    """What answers know at one moment."""

    predictor: Predictor | None
    """Absent if no class is known."""
    classes: Summary | None
    """Of everything known, where it has classes that the version has not."""


class TaughtLearner:
    """A learner, and what it was taught since its version was made."""

    def __init__(self, learner: Learner, summary: Summary | None) -> None:
        """`summary`: of the version; none: nothing was learned yet."""
        self._learner = learner
        self._classes = set(summary.labels) if summary is not None else set()
        self._known: Summary | None = None
        self._before_batches: Learner | None = None

    def teach(self, x: Examples, labels: Sequence[Label]) -> int:
        """Take a lesson; gives how many of its examples were answered wrong before."""
        return self._learner.teach(x, list(labels)).corrections

    def count(self, x: Examples, labels: Sequence[Label]) -> None:
        """Take a batch that is still to be learned as part of an episode: known, but no reason for corrections."""
        if self._before_batches is None:
            self._before_batches = _frozen(self._learner)
        self._learner.teach(x, list(labels), correct=False)

    def known(self) -> Known:
        """What answers know now."""
        try:
            predictor: Predictor | None = self._learner.predictor
        except NothingLearnedError:
            predictor = None
        classes = set(predictor.classes) if predictor is not None else set()
        if classes <= self._classes:
            self._known = None
        elif self._known is None or not classes <= set(self._known.labels):
            self._known = summarize(self._learner)
        return Known(predictor, self._known)

    def lessons_only(self) -> Learner:
        """A copy that stays as it is: the version and the lessons before any batch."""
        return self._before_batches or _frozen(self._learner)

    def consolidated(self, summary: Summary) -> None:
        """The lessons before any batch are part of a version now."""
        self._classes, self._known = set(summary.labels), None


def _frozen(learner: Learner) -> Learner:
    """A copy that teaching the original does not change: it replaces values, and adds to the table of labels only."""
    frozen = copy.copy(learner)
    frozen.labels = Labels(learner.labels.pairs(), learner.labels.next_id, learner.labels.kind)
    return frozen
