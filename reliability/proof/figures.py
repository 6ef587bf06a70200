"""What the page says of each result: figures, each beside its goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reliability.crash.options import GOAL_RECOVERY


@dataclass(frozen=True)
class Figure:
    """One line of the page."""

    what: str
    found: str
    goal: str
    held: bool


Result = dict[str, Any]


def _at_least(what: str, found: float, goal: float) -> Figure:
    return Figure(what, f"{found:,.0f}", f"at least {goal:,.0f}", found >= goal)


def _none(what: str, found: int) -> Figure:
    return Figure(what, f"{found:,}", "none", found == 0)


def of_crash(result: Result, goal: float) -> list[Figure]:
    """Kills."""
    broken = sum(map(len, result["violations"].values()))
    slowest, operations = result["slowest_recovery"], result.get("operations", {})
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(operations.items()))
    return [
        _at_least("kills survived", result["survived"], goal),
        _none("broken promises", broken),
        Figure("operations in the stream", kinds or "none", "all four kinds", len(operations) == 4),
        Figure(
            "slowest recovery",
            f"{slowest:.1f} s",
            f"at most {GOAL_RECOVERY:g} s on two quiet cores",
            slowest <= GOAL_RECOVERY,
        ),
    ]


def of_fuzz(result: Result, goal: float) -> list[Figure]:
    """Hostile messages."""
    return [
        _at_least("messages over every RPC", result["messages"], goal),
        _none("crashes, faults, revelations, changes", len(result["failures"])),
        *_slopes(result["memory"]),
    ]


def of_http(result: Result, goal: float) -> list[Figure]:
    """Made-up requests."""
    return [
        _at_least("HTTP requests over every route", result["requests"], goal),
        _none("faults, and answers that are not described", len(result["failures"])),
    ]


def of_coverage(result: Result, goal: float) -> list[Figure]:
    """Inputs mutated towards code that was not reached."""
    targets = result["targets"]
    return [
        _at_least("seconds of fuzzing by coverage", sum(target["seconds"] for target in targets), goal),
        _none("findings", sum(len(target["findings"]) for target in targets)),
    ]


def of_load(result: Result, goal: float) -> list[Figure]:
    """Hours of load."""
    slowest = max((part["p99"] for part in result["slices"]), default=0.0)
    return [
        _at_least("minutes of load at 80 % of capacity", result["seconds"] / 60, goal),
        _none("failed calls and other faults", len(result["failures"])),
        Figure(
            "p99, and that of the slowest slice",
            f"{1e3 * result['p99_seconds']:.0f} ms, {1e3 * slowest:.0f} ms",
            "—",
            True,
        ),
        *_slopes(result["memory"]),
    ]


def _slopes(memory: Result) -> list[Figure]:
    """Whether memory grows: the confidence interval of its slope must hold zero."""
    figures = []
    for name in ("front", "trainer"):
        trace = memory[name]
        interval = trace.get("slope_interval_mb") or trace.get("slope_interval")
        unit = f"MB per {memory['slopes_per']}"
        if interval is None:
            figures.append(
                Figure(f"memory of the {name}", f"{trace['slope_mb']} {unit}, no interval", "not growing", False)
            )
            continue
        low, high = interval
        found = f"{trace['slope_mb']:+.2f} ({low:+.2f} to {high:+.2f}) {unit}"
        figures.append(Figure(f"memory of the {name}", found, "not growing", low <= 0.0))
    return figures


def of_faults(result: Result, goal: float) -> list[Figure]:
    """Faults in the middle."""
    broken = [fault for fault in result["faults"] if not fault["held"]]
    return [_at_least("faults in the middle", len(result["faults"]), goal), _none("that broke a promise", len(broken))]


def of_simulation(result: Result, goal: float) -> list[Figure]:
    """Orders of events."""
    return [
        _at_least("simulated orders of events", result["schedules"], goal),
        _none("orders in which something did not hold", len(result["failed"])),
    ]


def of_tests(result: Result, goal: float) -> list[Figure]:
    """Tests alone."""
    return [_at_least("tests that passed", result["passed"], goal), _none("that did not", result["failed"])]


def of_audit(result: Result, goal: float) -> list[Figure]:
    """Known vulnerabilities."""
    return [Figure("known vulnerabilities", result["told"], "none, or explained", result["exit_code"] == 0)]
