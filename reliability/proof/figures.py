"""What the page says of each part's results: figures, each beside its goal. Results of several runs add up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliability.crash.options import GOAL_RECOVERY

Result = dict[str, Any]
_PROCESSES = ("front", "trainer", "teacher")
_QUANTILE = 1.96
"""Deviations on both sides that hold 95 %."""
_SPARE = 20
_SPARE_SHARE = 0.1
"""By this share and this number there may be more files and descriptors at the end than at first: one that is left
behind by each version or each connection would make thousands."""


@dataclass(frozen=True)
class Figure:
    """One line of the page."""

    what: str
    found: str
    goal: str
    held: bool


def _at_least(what: str, found: float, goal: float) -> Figure:
    return Figure(what, f"{found:,.0f}", f"at least {goal:,.0f}", found >= goal)


def _none(what: str, found: int) -> Figure:
    return Figure(what, f"{found:,}", "none", found == 0)


def _shown(what: str, found: str) -> Figure:
    return Figure(what, found, "—", True)


def _not_measured(what: str, goal: str) -> Figure:
    return Figure(what, "not measured", goal, False)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"


def _added(results: Sequence[Result], key: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result[key])
    return total


def of_crash(results: Sequence[Result], goal: float) -> list[Figure]:
    """Kills."""
    operations = _added(results, "operations")
    slowest = max(result["slowest_recovery"] for result in results)
    return [
        _at_least("kills survived", sum(result["survived"] for result in results), goal),
        _shown("what was killed", _counts(_added(results, "kills"))),
        _none("broken promises", sum(len(found) for result in results for found in result["violations"].values())),
        Figure("operations in the stream", _counts(operations), "all four kinds", len(operations) == 4),
        _shown("kills in the middle of one", f"{sum(result['kills_in_operations'] for result in results):,}"),
        _shown("lessons taught, each once", f"{sum(result['lessons'] for result in results):,}"),
        Figure(
            "slowest recovery",
            f"{slowest:.1f} s",
            f"at most {GOAL_RECOVERY:g} s on two quiet cores",
            slowest <= GOAL_RECOVERY,
        ),
    ]


def of_fuzz(results: Sequence[Result], goal: float) -> list[Figure]:
    """Hostile messages."""
    return [
        _at_least("messages over every RPC", sum(result["messages"] for result in results), goal),
        _none("crashes, faults, revelations, changes", sum(len(result["failures"]) for result in results)),
        *(_slope(name, results) for name in _PROCESSES if all(name in result["memory"] for result in results)),
    ]


def of_http(results: Sequence[Result], goal: float) -> list[Figure]:
    """Made-up requests."""
    return [
        _at_least("HTTP requests over every route", sum(result["requests"] for result in results), goal),
        _none("faults, and answers that are not described", sum(len(result["failures"]) for result in results)),
    ]


def of_coverage(results: Sequence[Result], goal: float) -> list[Figure]:
    """Inputs mutated towards code that was not reached."""
    targets = [target for result in results for target in result["targets"]]
    return [
        _at_least("seconds of fuzzing by coverage", sum(target["seconds"] for target in targets), goal),
        _none("findings", sum(len(target["findings"]) for target in targets)),
        _none("targets that ended badly", sum(target["exit_code"] != 0 for target in targets)),
    ]


def of_load(results: Sequence[Result], goal: float) -> list[Figure]:
    """Hours of load."""
    failed = sum(n for result in results for codes in result["failed_by_rpc"].values() for n in codes.values())
    p50, p99 = (1e3 * max(result[key] for result in results) for key in ("p50_seconds", "p99_seconds"))
    return [
        _at_least("minutes of load at 80 % of capacity", sum(result["seconds"] for result in results) / 60, goal),
        _shown("predictions", f"{sum(result['requests'] for result in results):,}"),
        _shown("beside them", _counts(_added(results, "background"))),
        _none("failed calls but RESOURCE_EXHAUSTED at a limit", failed),
        _none("failures of any kind", sum(len(result["failures"]) for result in results)),
        _shown("p50, p99", f"{p50:.1f} ms, {p99:.0f} ms"),
        *(_slope(name, results) for name in _PROCESSES),
        *(_bounded(name, results) for name in ("descriptors", "files")),
    ]


def _slope(name: str, results: Sequence[Result]) -> Figure:
    """Whether memory grows: the mean slope of all runs, whose confidence interval must hold zero or lie below it."""
    what, goal = f"memory of the {name}, after the warm-up", "not growing"
    traces = [result["memory"].get(name) for result in results]
    intervals = [trace and trace.get("slope_interval_mb") for trace in traces]
    if not all(intervals):
        return _not_measured(what, goal)
    mean = sum(trace["slope_mb"] for trace in traces) / len(traces)
    deviations = [(high - low) / (2 * _QUANTILE) for low, high in intervals]
    half = _QUANTILE * math.hypot(*deviations) / len(deviations)
    found = f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f}) MB per {results[0]['memory']['slopes_per']}"
    return Figure(what, found, goal, mean - half <= 0.0)


def _bounded(name: str, results: Sequence[Result]) -> Figure:
    """Whether as many are there at the end as at first, or nearly so."""
    what, goal = f"{name}: first, last, most", f"in the end at most {_SPARE_SHARE:.0%} and {_SPARE} more than at first"
    if not all(result.get(name) for result in results):
        return _not_measured(what, goal)
    counts = [result[name] for result in results]
    held = all(count["last"] <= count["first"] * (1 + _SPARE_SHARE) + _SPARE for count in counts)
    return Figure(what, "; ".join(f"{c['first']:,}, {c['last']:,}, {c['most']:,}" for c in counts), goal, held)


def of_faults(results: Sequence[Result], goal: float) -> list[Figure]:
    """Faults in the middle."""
    faults = [fault for result in results for fault in result["faults"]]
    return [
        _at_least("faults in the middle", len({fault["fault"] for fault in faults}), goal),
        _none("that broke a promise", sum(not fault["well"] for fault in faults)),
    ]


def of_simulation(results: Sequence[Result], goal: float) -> list[Figure]:
    """Orders of events."""
    return [
        _at_least("simulated orders of events", sum(result["schedules"] for result in results), goal),
        _none("orders in which something did not hold", sum(len(result["failed"]) for result in results)),
    ]


def of_write_order(results: Sequence[Result], goal: float) -> list[Figure]:
    """System calls, in their order."""
    return [
        _at_least(
            "acknowledgements sent after their flush", sum(result["acknowledgements"] for result in results), goal
        ),
        _at_least("versions announced after theirs", sum(result["snapshots"] for result in results), goal / 4),
        _none("in another order", sum(len(result["violations"]) for result in results)),
    ]


def of_tests(results: Sequence[Result], goal: float) -> list[Figure]:
    """Tests alone."""
    return [
        _at_least("tests that passed", sum(result["passed"] for result in results), goal),
        _none("that did not, or were skipped", sum(result["failed"] for result in results)),
    ]


def of_audit(results: Sequence[Result], goal: float) -> list[Figure]:
    """Known vulnerabilities."""
    return [
        Figure("known vulnerabilities", result["told"], "none, or explained", result["exit_code"] == 0)
        for result in results
    ]


def of_pythons(results: Sequence[Result], goal: float) -> list[Figure]:
    """Versions of Python."""
    told = {None: "absent: no such interpreter here", 0: "passed"}
    return [
        Figure(f"tests with Python {version}", told.get(code, f"failed with exit code {code}"), "passed", code == 0)
        for result in results
        for version, code in result["exit_codes"].items()
    ]


def of_container(results: Sequence[Result], goal: float) -> list[Figure]:
    """The image, built and run."""
    return [
        Figure(
            "checks of the image that passed",
            str(len(result["passed"])) + ("" if result["exit_code"] == 0 else f", and then {result['told']}"),
            "all",
            result["exit_code"] == 0,
        )
        for result in results
    ]
