"""What a run of episodes came to, as pure functions of what was predicted.

Every accuracy is a mean over classes, in [0, 1], so that classes count alike however many test images they have; on
balanced test sets it is the share of right answers. NaN stands where there is nothing to measure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def confusion_matrix(truth: Counts, predicted: Counts, classes: int) -> Counts:
    """How often each class (row) was taken for which (column): (classes, classes).

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    if len(truth) != len(predicted):
        raise ValueError(f"{len(truth)} true classes but {len(predicted)} predicted ones")
    flat = np.bincount(truth * classes + predicted, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.int64)


def class_accuracies(confusion: Counts) -> Floats:
    """Share of right answers per class, NaN for classes without examples: (classes,)."""
    totals = confusion.sum(1)
    right = np.diagonal(confusion)
    shares: Floats = np.divide(right, totals, out=np.full(len(totals), np.nan), where=totals > 0)
    return shares


def mean_over(values: Floats, classes: Sequence[int]) -> float:
    """Mean of some classes' accuracies; NaN if there are none."""
    chosen = values[list(classes)]
    chosen = chosen[~np.isnan(chosen)]
    return float(chosen.mean()) if len(chosen) else float("nan")


def average_accuracy(confusion: Counts) -> float:
    """The paper's figure: mean over all classes of the share of right answers."""
    return mean_over(class_accuracies(confusion), range(len(confusion)))


def accuracy_matrix(accuracies: Sequence[Floats], groups: Sequence[Sequence[int]]) -> Floats:
    """R[i, j]: accuracy, after episode i, on the classes first seen in episode j; NaN for j > i and empty groups.

    `accuracies`: per-class accuracies after each episode. `groups`: the classes first seen in each.
    """
    episodes = len(groups)
    if len(accuracies) != episodes:
        raise ValueError(f"accuracies after {len(accuracies)} episodes for {episodes} groups of classes")
    matrix = np.full((episodes, episodes), np.nan)
    for i in range(episodes):
        for j in range(i + 1):
            matrix[i, j] = mean_over(accuracies[i], groups[j])
    return matrix


def forgetting(matrix: Floats) -> float:
    """Mean over earlier episodes of the best accuracy ever had before the end, less the final one.

    0 with a single episode: nothing could be forgotten.
    """
    return _mean_of_earlier([float(np.max(matrix[j:-1, j]) - matrix[-1, j]) for j in _earlier(matrix)])


def backward_transfer(matrix: Floats) -> float:
    """Mean over earlier episodes of the final accuracy less the one right after learning; negative if it was lost."""
    return _mean_of_earlier([float(matrix[-1, j] - matrix[j, j]) for j in _earlier(matrix)])


def _earlier(matrix: Floats) -> list[int]:
    """Episodes before the last one that brought new classes."""
    return [j for j in range(len(matrix) - 1) if not np.isnan(matrix[-1, j])]


def _mean_of_earlier(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
