"""Milliseconds to teach one example to a learner of many classes, alone and with the next prediction."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.speed.timing import spent_on
from sharp_engine import Learner, LearnerConfig


@dataclass(frozen=True)
class TeachingTimes:
    """Medians over examples, by the clock."""

    kind: str
    classes: int
    examples: int
    teach_ms: float
    with_prediction_ms: float
    """Teaching, and naming the same example: what is put off until somebody asks is counted here."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "inputs": self.kind,
            "classes": self.classes,
            "examples": self.examples,
            "teach_ms": self.teach_ms,
            "with_prediction_ms": self.with_prediction_ms,
        }


def learner_of(config: LearnerConfig, examples: Examples, per_episode: int) -> Learner:
    """A learner that knows all classes of some examples, so many per episode."""
    learner = Learner(config)
    classes = np.unique(examples.y)
    for at in range(0, len(classes), per_episode):
        part = examples.take(np.flatnonzero(np.isin(examples.y, classes[at : at + per_episode])))
        learner.learn_episode(part.x, part.y)
    return learner


def measure(learner: Learner, kind: str, unseen: Examples) -> TeachingTimes:
    """Teach examples one by one."""
    taught, answered = [], []
    learner.teach(unseen.x[:1], unseen.y[:1])  # warms up
    for i in range(1, len(unseen)):
        x, y = unseen.x[i : i + 1], unseen.y[i : i + 1]
        teach = spent_on(lambda x=x, y=y: learner.teach(x, y)).wall  # type: ignore[misc]
        taught.append(teach)
        answered.append(teach + spent_on(lambda x=x: learner.predict(x)).wall)  # type: ignore[misc]
    classes = len(learner.inspect().classes)
    medians = (1000 * statistics.median(times) for times in (taught, answered))
    return TeachingTimes(kind, classes, len(taught), *medians)
