"""Figures of a learner's answers, as pure functions. Accuracies are means over classes, as in `benchmarks.paper`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.metrics import class_accuracies, confusion_matrix, mean_over

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BINS = 15
"""Of the expected calibration error."""


def accuracy(truth: Ints, predicted: Ints, classes: Iterable[int] | None = None) -> float:
    """Mean over some classes, or over all that occur, of the share of right answers; NaN if none of them occurs.

    >>> accuracy(np.array([0, 0, 1]), np.array([0, 1, 1]))
    0.75
    """
    count = 1 + max(int(truth.max(initial=-1)), int(predicted.max(initial=-1)))
    found = class_accuracies(confusion_matrix(truth, predicted, count))
    return mean_over(found, [c for c in (range(count) if classes is None else classes) if c < count])


def expected_calibration_error(share: Floats, right: Flags, bins: int = BINS) -> float:
    """Mean distance between how sure and how right the answers are, over bins of equal width, weighted by their size.

    >>> round(expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False])), 3)
    0.4
    """
    place = np.clip(np.ceil(np.asarray(share, dtype=np.float64) * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=np.asarray(right, dtype=np.float64) - share, minlength=bins)
    return float(np.abs(gap).sum() / len(share))


def auroc(unknown: Floats, known: Floats) -> float:
    """How likely an unknown example has a higher score than a known one; ties count half.

    >>> auroc(np.array([0.9, 0.5]), np.array([0.1, 0.5]))
    0.875
    """
    ordered = np.sort(known)
    below = np.searchsorted(ordered, unknown, side="left")
    not_above = np.searchsorted(ordered, unknown, side="right")
    return float((below + not_above).sum() / (2 * len(unknown) * len(known)))


@dataclass(frozen=True)
class Divided:
    """Accuracy on a few classes, on the others, and over all."""

    few: float
    others: float
    overall: float

    def to_dict(self) -> dict[str, float]:
        """Plain JSON values."""
        return {"few": self.few, "others": self.others, "overall": self.overall}


def divided(truth: Ints, predicted: Ints, few: Iterable[int]) -> Divided:
    """Accuracy on the classes `few`, on the other classes that occur, and over all of them."""
    chosen = set(few)
    others = sorted(set(truth.tolist()) - chosen)
    return Divided(
        accuracy(truth, predicted, sorted(chosen)), accuracy(truth, predicted, others), accuracy(truth, predicted)
    )
