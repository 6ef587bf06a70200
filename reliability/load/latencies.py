"""How long requests took: tens of millions of them in two hours, kept in single precision and asked for percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float32]


@dataclass(frozen=True)
class LongSlice:
    """Some minutes of the load."""

    p50_seconds: float
    p99_seconds: float
    requests: int
    """That were answered."""


@dataclass
class Latencies:
    """Of one run."""

    _parts: list[tuple[float, Seconds]] = field(default_factory=list)
    """When the requests of a part began, in seconds of the run, and what they took."""

    def add(self, start: float, seconds: Sequence[float]) -> None:
        """Keep what the requests of some seconds took."""
        self._parts.append((start, np.asarray(seconds, np.float32)))

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the requests, in per cent, was answered."""
        return _percentiles([part for _, part in self._parts], share)[0]

    def slices(self, seconds: float) -> list[LongSlice]:
        """The run in pieces of so many seconds; a part belongs to the piece in which it began.

        >>> latencies = Latencies()
        >>> for start, taken in ((0.0, [0.5, 0.5]), (7.0, [0.5]), (11.0, [2.0])):
        ...     latencies.add(start, taken)
        >>> [(part.p50_seconds, part.p99_seconds, part.requests) for part in latencies.slices(10.0)]
        [(0.5, 0.5, 3), (2.0, 2.0, 1)]
        """
        pieces: dict[int, list[Seconds]] = {}
        for start, part in self._parts:
            pieces.setdefault(int(start // seconds), []).append(part)
        return [_long_slice(piece) for _, piece in sorted(pieces.items())]


def _long_slice(parts: list[Seconds]) -> LongSlice:
    p50, p99 = _percentiles(parts, 50, 99)
    return LongSlice(p50, p99, sum(map(len, parts)))


def _percentiles(parts: list[Seconds], *shares: float) -> list[float]:
    together = np.concatenate(parts) if any(map(len, parts)) else np.asarray([np.nan], np.float32)
    return [float(value) for value in np.percentile(together, shares)]
