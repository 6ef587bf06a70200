"""The parts of the proof: which command shows what, how much of it, and where its result goes."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devtools.server_process import ROOT
from reliability.proof import figures
from reliability.proof.figures import Figure, Result

ACCELERATOR_TESTS = "tests/engine/test_accelerator.py"


@dataclass(frozen=True)
class Part:
    """One command."""

    name: str
    title: str
    words: tuple[str, ...]
    """Of the command; {size} and {output} are filled in."""
    full: int
    """Its size in a whole proof, in its own unit."""
    quick: int
    figures: Callable[[Result, float], list[Figure]]
    goal: float | None = None
    """What is wanted of it; absent: its size."""
    why_not: Callable[[], str] = lambda: ""
    """Why it can't be run here; empty: it can."""
    quick_words: tuple[str, ...] = ()
    """More words of the command in a short form."""

    def command(self, quick: bool, output: Path) -> list[str]:
        """The command, in full or in its short form."""
        size = self.quick if quick else self.full
        words = self.words + (self.quick_words if quick else ())
        return [sys.executable, *(word.format(size=size, output=output) for word in words)]

    def wanted(self, quick: bool) -> float:
        """The goal, of the size that was run."""
        if quick:
            return 0.0
        return float(self.full) if self.goal is None else self.goal


def _module(name: str) -> Callable[[], str]:
    def why_not() -> str:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        return "" if found is not None else f"there is no {name} here"

    return why_not


def _postgres_can_be_killed() -> str:
    from reliability.crash.__main__ import command

    return "" if "store" in inspect.signature(command).parameters else "the crash loop knows no other store here"


def _accelerator() -> str:
    return "" if (ROOT / ACCELERATOR_TESTS).exists() else f"there is no {ACCELERATOR_TESTS} here"


def _run(module: str, *words: str) -> tuple[str, ...]:
    return ("-m", module, *words, "--output", "{output}")


PARTS = (
    Part("kills", "Kills", _run("reliability.crash", "--kills", "{size}"), 1000, 4, figures.of_crash),
    Part(
        "kills-postgres",
        "Kills, on PostgreSQL",
        _run("reliability.crash", "--store", "postgres", "--kills", "{size}"),
        200,
        4,
        figures.of_crash,
        why_not=_postgres_can_be_killed,
    ),
    Part("messages", "Messages", _run("reliability.fuzz", "--messages", "{size}"), 1_000_000, 2000, figures.of_fuzz),
    Part("http", "HTTP requests", _run("reliability.http", "--examples", "{size}"), 1700, 2, figures.of_http, 100_000),
    Part(
        "coverage",
        "Decoders, the snapshot reader and the journal's reader",
        _run("reliability.fuzz.coverage", "--seconds", "{size}"),
        1200,
        2,
        figures.of_coverage,
        3600,
        why_not=_module("reliability.fuzz.coverage"),
    ),
    Part(
        "hours",
        "Hours of load",
        _run("reliability.load", "--minutes", "{size}"),
        120,
        1,
        figures.of_load,
        quick_words=("--tiny",),
    ),
    Part(
        "faults",
        "Faults in the middle",
        _run("reliability.faults"),
        7,
        7,
        figures.of_faults,
        why_not=_module("reliability.faults"),
    ),
    Part(
        "simulation",
        "Orders of events",
        _run("reliability.simulation", "--schedules", "{size}"),
        2000,
        4,
        figures.of_simulation,
    ),
    Part(
        "accelerator",
        "The GPU path on a stand-in",
        _run("reliability.proof.checks", "tests", ACCELERATOR_TESTS),
        1,
        1,
        figures.of_tests,
        why_not=_accelerator,
    ),
    Part("audit", "Dependencies", _run("reliability.proof.checks", "audit"), 1, 1, figures.of_audit),
)
