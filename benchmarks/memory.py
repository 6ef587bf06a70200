"""How the memory of a server's two processes grows: samples, and a straight line through them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

_WARM_UP = 0.3
"""Share of the run, from its start, that the line leaves out: caches fill, libraries load."""
_FEWEST = 4


@dataclass
class Trace:
    """One process's resident bytes over a run."""

    places: list[float] = field(default_factory=list)
    """When each sample was taken, in the unit of the run."""
    samples: list[int] = field(default_factory=list)

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
        start = self.places[0] + _WARM_UP * (self.places[-1] - self.places[0])
        kept = [(p, s) for p, s in zip(self.places, self.samples, strict=True) if p >= start]
        return [p for p, _ in kept], [s for _, s in kept]

    @property
    def slope(self) -> float | None:
        """Megabytes per unit of the run, by least squares, after the warm-up; absent with too few samples.

        >>> trace = Trace([0, 1, 2, 3, 4, 5], [0, 9_000_000, 10_000_000, 12_000_000, 14_000_000, 16_000_000])
        >>> trace.slope
        2.0
        """
        places, samples = self._settled
        if len(places) < _FEWEST or places[0] == places[-1]:
            return None
        return round(float(np.polyfit(places, np.array(samples) / 1e6, 1)[0]), 6)

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
        }


@dataclass
class Memory:
    """Front and trainer together."""

    front: Trace = field(default_factory=Trace)
    trainer: Trace = field(default_factory=Trace)

    def sample(self, place: float, front: int | None, trainer: int | None) -> None:
        """Note what both processes hold now, in bytes, as `ServerProcess.memory` tells it."""
        self.front.add(place, front)
        self.trainer.add(place, trainer)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"front": self.front.to_dict(), "trainer": self.trainer.to_dict()}
