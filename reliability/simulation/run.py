"""Many schedules, one after the other or in several processes; what happened in them, and which failed."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.errors import require
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from reliability.simulation.schedule import ScheduleResult, run_schedule


@dataclass(frozen=True)
class SimulationOptions:
    """One run."""

    schedules: int = 2000
    seed: int = 0
    """Of the first schedule; the others follow."""
    jobs: int = 2
    """Processes."""
    log: bool = False
    """Whether the server may log, with one process."""

    def __post_init__(self) -> None:
        require(self.schedules >= 1, "schedules", self.schedules, "at least 1")
        require(self.jobs >= 1, "jobs", self.jobs, "at least 1")


@dataclass
class SimulationResult:
    """What came of them."""

    options: SimulationOptions
    schedules: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """How often what happened, over all of them."""
    failed: dict[int, list[str]] = field(default_factory=dict)
    """Seed → what did not hold."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"versions": versions(), "machine": machine(), **asdict(self)}


def run(options: SimulationOptions, progress: ReportProgress = silently) -> SimulationResult:
    """Run the schedules; progress is counted in them."""
    begun, result, events = time.monotonic(), SimulationResult(options), Counter[str]()
    seeds = range(options.seed, options.seed + options.schedules)
    progress("starting", 0, options.schedules)
    for done in _each(seeds, options):
        result.schedules += 1
        events.update(done.events)
        if done.problems:
            result.failed[done.seed] = done.problems
        progress(f"{events['version']} versions, {len(result.failed)} schedules failed", result.schedules)
    result.events = dict(sorted(events.items()))
    result.seconds = time.monotonic() - begun
    return result


def _each(seeds: Iterable[int], options: SimulationOptions) -> Iterator[ScheduleResult]:
    if options.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(options.jobs, initializer=_silence) as pool:
            yield from pool.imap_unordered(run_schedule, seeds, chunksize=4)
        return
    before = logging.root.manager.disable
    if not options.log:
        _silence()
    try:
        yield from map(run_schedule, seeds)
    finally:
        logging.disable(before)


def _silence() -> None:
    """What a server says about faults that are meant is for nobody."""
    logging.disable(logging.CRITICAL)
