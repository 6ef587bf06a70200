"""Our figure beside a ceiling's, measured in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measured:
    """One side, once."""

    rate: float
    """Units of work per second."""
    cpu: float
    """Seconds of the processor per unit, of the side that is measured; NaN where the system does not say."""


@dataclass(frozen=True)
class Throughput:
    """Medians of both sides over all rounds, and of the rounds' ratios."""

    name: str
    unit: str
    ceiling_name: str
    ours: Measured
    ceiling: Measured
    ratio: float
    """Of the rates."""
    cpu_ratio: float
    """The ceiling's processor time over ours: the ratio that an undisturbed core would give."""
    target: float
    failures: int = 0
    note: str = ""
    ratios: list[float] = field(default_factory=list)
    """Round by round."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ceiling": self.ceiling_name,
            "rate": self.ours.rate,
            "ceiling_rate": self.ceiling.rate,
            "ratio": self.ratio,
            "cpu_seconds": self.ours.cpu,
            "ceiling_cpu_seconds": self.ceiling.cpu,
            "cpu_ratio": self.cpu_ratio,
            "target": self.target,
            "failures": self.failures,
            "note": self.note,
            "ratio_by_round": self.ratios,
        }


def in_turns(
    ours: Callable[[], Measured], ceiling: Callable[[], Measured], rounds: int, ratios: list[float] | None = None
) -> tuple[Measured, Measured, float, float]:
    """Medians of both sides, of the ratios of their rates, and of the ratios of their processor time.

    Who begins changes every round. `ratios`, where given, takes the ratio of every round: the spread.
    """
    pairs: list[tuple[Measured, Measured]] = []
    for turn in range(rounds):
        if turn % 2 == 0:
            mine = ours()
            pairs.append((mine, ceiling()))
        else:
            theirs = ceiling()
            pairs.append((ours(), theirs))
    if ratios is not None:
        ratios.extend(mine.rate / theirs.rate for mine, theirs in pairs)
    return (
        _median([mine for mine, _ in pairs]),
        _median([theirs for _, theirs in pairs]),
        statistics.median(mine.rate / theirs.rate for mine, theirs in pairs),
        statistics.median(theirs.cpu / mine.cpu if mine.cpu else float("nan") for mine, theirs in pairs),
    )


def _median(values: list[Measured]) -> Measured:
    return Measured(statistics.median(v.rate for v in values), statistics.median(v.cpu for v in values))
