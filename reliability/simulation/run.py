"""Many schedules, one after the other or in several processes; what happened in them, and which failed."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.errors import require
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from reliability.simulation.leases import run_lease_schedule
from reliability.simulation.schedule import ScheduleResult, run_schedule

_RUNS: dict[str, Callable[[int], ScheduleResult]] = {"": run_schedule, "leases ": run_lease_schedule}
"""By what stands before a seed, where it is named."""


@dataclass(frozen=True)
class SimulationOptions:
    """One run."""

    schedules: int = 2000
    seed: int = 0
    """Of the first schedule; the others follow."""
    leases: int | None = None
    """Schedules of two servers that take a learner from each other, beside those; absent: a quarter as many."""
    jobs: int = 2
    """Processes."""
    log: bool = False
    """Whether the server may log, with one process."""

    def __post_init__(self) -> None:
        require(self.schedules >= 0, "schedules", self.schedules, "at least 0")
        require(self.leases is None or self.leases >= 0, "leases", self.leases, "at least 0")
        require(self.jobs >= 1, "jobs", self.jobs, "at least 1")


@dataclass
class SimulationResult:
    """What came of them."""

    options: SimulationOptions
    schedules: int = 0
    """Of one server."""
    lease_schedules: int = 0
    """Of two."""
    events: dict[str, int] = field(default_factory=dict)
    """How often what happened, over all of them."""
    failed: dict[str, list[str]] = field(default_factory=dict)
    """Seed, after "leases" where there were two servers → what did not hold."""
    seconds: float = 0.0

    @property
    def interleavings(self) -> int:
        """Orders of events: each schedule is one."""
        return self.schedules + self.lease_schedules

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"versions": versions(), "machine": machine(), **asdict(self), "interleavings": self.interleavings}


def run(options: SimulationOptions, progress: ReportProgress = silently) -> SimulationResult:
    """Run the schedules; progress is counted in them."""
    begun, result, events = time.monotonic(), SimulationResult(options), Counter[str]()
    leases = options.schedules // 4 if options.leases is None else options.leases
    cases = [
        (kind, seed)
        for kind, count in (("", options.schedules), ("leases ", leases))
        for seed in range(options.seed, options.seed + count)
    ]
    progress("starting", 0, len(cases))
    for kind, done in _each(cases, options):
        if kind:
            result.lease_schedules += 1
        else:
            result.schedules += 1
        events.update(done.events)
        if done.problems:
            result.failed[f"{kind}{done.seed}"] = done.problems
        progress(f"{events['version']} versions, {len(result.failed)} schedules failed", result.interleavings)
    result.events = dict(sorted(events.items()))
    result.seconds = time.monotonic() - begun
    return result


def _each(cases: Sequence[tuple[str, int]], options: SimulationOptions) -> Iterator[tuple[str, ScheduleResult]]:
    if options.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(options.jobs, initializer=_silence) as pool:
            yield from pool.imap_unordered(_run, cases, chunksize=4)
        return
    before = logging.root.manager.disable
    if not options.log:
        _silence()
    try:
        yield from map(_run, cases)
    finally:
        logging.disable(before)


def _run(case: tuple[str, int]) -> tuple[str, ScheduleResult]:
    kind, seed = case
    return kind, _RUNS[kind](seed)


def _silence() -> None:
    """What a server says about faults that are meant is for nobody."""
    logging.disable(logging.CRITICAL)
