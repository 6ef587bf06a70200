"""How the memory of a server's processes grows: samples, and a straight line through them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_WARM_UP = 0.3
"""Share of the run, from its start, that the line leaves out at most: caches fill, libraries load."""
_FEWEST = 4
_QUANTILE = 1.96
"""Deviations on both sides that hold 95 %."""


@dataclass
class Trace:
    """One process's resident bytes over a run."""

    places: list[float] = field(default_factory=list)
    """When each sample was taken, in the unit of the run."""
    samples: list[int] = field(default_factory=list)
    warm_up: float = math.inf
    """What the line leaves out, in the unit of the run; in a short run a share of it is enough."""

    def add(self, place: float, resident: int | None) -> None:
        """Take a sample; a process that is not there gives none."""
        if resident is not None:
            self.places.append(place)
            self.samples.append(resident)

    @property
    def _settled(self) -> tuple[list[float], list[int]]:
        """The samples after the warm-up."""
        if not self.places:
            return [], []
        start = self.places[0] + min(self.warm_up, _WARM_UP * (self.places[-1] - self.places[0]))
        kept = [(p, s) for p, s in zip(self.places, self.samples, strict=True) if p >= start]
        return [p for p, _ in kept], [s for _, s in kept]

    @property
    def slope(self) -> float | None:
        """Megabytes per unit of the run, by least squares, after the warm-up; None with too few samples.

        >>> trace = Trace([0, 1, 2, 3, 4, 5], [0, 9_000_000, 10_000_000, 12_000_000, 14_000_000, 16_000_000])
        >>> trace.slope
        2.0
        """
        fitted = self._fitted()
        return None if fitted is None else round(fitted[0], 6)

    @property
    def slope_interval(self) -> tuple[float, float] | None:
        """Where the slope lies with 95 % confidence; None with too few samples.

        Memory grows in steps, so neighbouring samples deviate from the line alike. The deviation of the slope therefore
        counts products of neighbouring residuals too (Newey and West's estimate), or the interval would be too narrow.
        """
        fitted = self._fitted()
        if fitted is None:
            return None
        slope, deviation = fitted
        return round(slope - _QUANTILE * deviation, 6), round(slope + _QUANTILE * deviation, 6)

    def describe_slope(self) -> str:
        """The slope with its interval, for people.

        >>> Trace(list(range(10)), [1_000_000 * i for i in range(10)]).describe_slope()
        '+1.00 (+1.00 to +1.00)'
        """
        if self.slope is None or self.slope_interval is None:
            return "too few samples"
        low, high = self.slope_interval
        return f"{self.slope:+.2f} ({low:+.2f} to {high:+.2f})"

    def _fitted(self) -> tuple[float, float] | None:
        """The slope of the line through the samples after the warm-up, and its deviation."""
        places, samples = self._settled
        count = len(places)
        if count < _FEWEST or places[0] == places[-1]:
            return None
        x = np.asarray(places) - np.mean(places)
        y = np.asarray(samples) / 1e6
        slope, offset = np.polyfit(x, y, 1)
        scores = x * (y - slope * x - offset)  # (samples,)
        lags = min(count - 1, 1 + int(4 * (count / 100) ** (2 / 9)))
        variance = float(scores @ scores)
        for lag in range(1, lags + 1):
            variance += 2 * (1 - lag / (lags + 1)) * float(scores[lag:] @ scores[:-lag])
        variance *= count / (count - 2) / float(x @ x) ** 2
        return float(slope), math.sqrt(max(variance, 0.0))

    @property
    def growth(self) -> float:
        """Megabytes from the end of the warm-up to the end: last tenth of what follows it over its first tenth."""
        _, samples = self._settled
        if not samples:
            return 0.0
        part = max(1, len(samples) // 10)
        return round(float(np.median(samples[-part:]) - np.median(samples[:part])) / 1e6, 3)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "samples": len(self.samples),
            "first_mb": self.samples[0] / 1e6 if self.samples else None,
            "largest_mb": max(self.samples) / 1e6 if self.samples else None,
            "last_mb": self.samples[-1] / 1e6 if self.samples else None,
            "growth_mb": self.growth,
            "slope_mb": self.slope,
            "slope_interval_mb": self.slope_interval,
        }


class Memory:
    """All processes of a server."""

    def __init__(self, warm_up: float = math.inf) -> None:
        """`warm_up`: see `Trace`."""
        self.front, self.trainer, self.teacher = (Trace(warm_up=warm_up) for _ in range(3))

    @property
    def traces(self) -> dict[str, Trace]:
        """By the name of the process, as `ServerProcess.memory` has it."""
        return {"front": self.front, "trainer": self.trainer, "teacher": self.teacher}

    def sample(self, place: float, held: Mapping[str, int | None]) -> None:
        """Note what each process holds now, in bytes."""
        for name, trace in self.traces.items():
            trace.add(place, held.get(name))

    def grown(self, bound: float) -> list[str]:
        """Which process grew by more than so many megabytes, in words."""
        return [
            f"the {name} grew by {trace.growth:.0f} MB, more than {bound:.0f}"
            for name, trace in self.traces.items()
            if trace.growth > bound
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: trace.to_dict() for name, trace in self.traces.items()}
