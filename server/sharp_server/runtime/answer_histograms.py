"""How sure answers are, and how novel what was asked: counted in buckets, per learner, so that drift shows.

Written by the predictor's thread, a few microseconds per batch however large; read by whoever collects metrics. It
keeps numbers of answers only, never an answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
NOVELTIES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)


class Distribution:
    """A histogram of numbers of 0 to 1."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._names = [str(edge) for edge in edges] + ["+Inf"]
        # Of the values' own type, or each batch would be converted to compare; 0.9 as the nearest float32 is what 0.9
        # is in answers, too.
        self._edges = np.array(edges, np.float32)
        self._state: tuple[NDArray[np.int64], float] = np.zeros(len(edges) + 1, np.int64), 0.0

    def add(self, values: NDArray[np.float32]) -> None:
        """Count some; the state is swapped as one, so that a reader's buckets and sum agree."""
        counts, total = self._state
        found = np.bincount(self._edges.searchsorted(values), minlength=len(counts))
        self._state = counts + found, total + float(values.sum())

    def read(self) -> tuple[list[tuple[str, Any]], float]:
        """(Upper edge, how many lie up to it), and the sum of all: as Prometheus wants them."""
        counts, total = self._state
        return list(zip(self._names, counts.cumsum().tolist(), strict=True)), total


class AnswerHistograms:
    """Of one learner's answers."""

    def __init__(self) -> None:
        self.shares, self.novelties = Distribution(SHARES), Distribution(NOVELTIES)

    def add(self, shares: NDArray[np.float32], novelties: NDArray[np.float32] | None) -> None:
        """Count the answers of a batch; novelties, where they were asked for."""
        self.shares.add(shares)
        if novelties is not None:
            self.novelties.add(novelties)
