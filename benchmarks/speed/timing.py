"""Stopwatches, and two things measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Spent:
    """Seconds of the processor, over all threads of this process, and of the clock on the wall."""

    cpu: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cpu + other.cpu, self.wall + other.wall)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.cpu - other.cpu, self.wall - other.wall)

    def times(self, factor: float) -> Spent:
        """So many times as much."""
        return Spent(self.cpu * factor, self.wall * factor)


def now() -> Spent:
    """Both clocks; differences count. Work that was given to an accelerator is waited for, so that it counts too."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if torch.backends.mps.is_available():
        torch.mps.synchronize()
    return Spent(time.process_time(), time.perf_counter())


def spent_on(work: Callable[[], object]) -> Spent:
    """What one call takes."""
    before = now()
    work()
    return now() - before


@dataclass(frozen=True)
class Comparison:
    """One measurement: ours against a baseline, per unit of work."""

    name: str
    unit: str
    """What the seconds are for: an epoch, an example, …"""
    ours: Spent
    baseline: Spent
    target: float | None = None
    """The ratio of processor time to reach, where one is set."""
    beside: str = ""
    """What the baseline is, where one table has several."""

    @property
    def cpu_ratio(self) -> float:
        """Our processor time over the baseline's."""
        return self.ours.cpu / self.baseline.cpu if self.baseline.cpu else float("nan")

    @property
    def wall_ratio(self) -> float:
        """Our time over the baseline's."""
        return self.ours.wall / self.baseline.wall if self.baseline.wall else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "beside": self.beside,
            "cpu_seconds": self.ours.cpu,
            "wall_seconds": self.ours.wall,
            "baseline_cpu_seconds": self.baseline.cpu,
            "baseline_wall_seconds": self.baseline.wall,
            "cpu_ratio": self.cpu_ratio,
            "wall_ratio": self.wall_ratio,
            "target": self.target,
        }


def in_turns(
    ours: Callable[[], object], baseline: Callable[[], object], *, rounds: int, least_seconds: float
) -> tuple[Spent, Spent]:
    """Median of what one call of each takes, over rounds in which both are called as often, one after the other.

    A round makes so many calls that the slower one takes at least `least_seconds`; who begins changes every round.
    """
    once = max(spent_on(ours).wall, spent_on(baseline).wall)  # warms up, too
    calls = max(1, round(least_seconds / max(once, 1e-7)))

    def repeat(work: Callable[[], object]) -> Spent:
        def all_calls() -> None:
            for _ in range(calls):
                work()

        return spent_on(all_calls).times(1.0 / calls)

    pairs: list[tuple[Spent, Spent]] = []
    for turn in range(rounds):
        if turn % 2 == 0:
            first = repeat(ours)
            pairs.append((first, repeat(baseline)))
        else:
            first = repeat(baseline)
            pairs.append((repeat(ours), first))
    return median([mine for mine, _ in pairs]), median([theirs for _, theirs in pairs])


def median(values: Sequence[Spent]) -> Spent:
    """Medians of both clocks, each by itself."""
    return Spent(statistics.median(v.cpu for v in values), statistics.median(v.wall for v in values))
