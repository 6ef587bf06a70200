"""One run: round after round over every method, the hostile files and the wire, until enough messages were sent."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import require
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from reliability.fuzz import wire
from reliability.fuzz.attack import Attacker
from reliability.fuzz.fuzz_target import FuzzTarget, opened
from reliability.memory import Memory

PER_UNIT = 10_000
"""Slopes of memory are given per this many messages."""
GROWTH_BOUND = 150.0
"""Megabytes that a process may grow by after the warm-up, over the whole run."""


@dataclass(frozen=True)
class FuzzOptions:
    """One run."""

    messages: int = 100_000
    seed: int = 0
    per_round: int = 100
    """Calls per method in one round; after each come the tricks on the wire, which take seconds."""

    def __post_init__(self) -> None:
        require(self.messages >= 1, "messages", self.messages, "at least 1")
        require(self.seed >= 0, "seed", self.seed, "at least 0")
        require(self.per_round >= 1, "per-round", self.per_round, "at least 1")


@dataclass
class FuzzResult:
    """What was sent, what came back, and what it cost."""

    options: FuzzOptions
    seconds: float = 0.0
    tallies: dict[str, Any] = field(default_factory=dict)
    violations: list[dict[str, str]] = field(default_factory=list)
    wire: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    trainer_restarts: int = 0
    planted_same: bool = False
    planted_same_after_restart: bool = False
    log_faults: list[str] = field(default_factory=list)
    exit_code: int | None = None

    @property
    def messages(self) -> int:
        """Messages sent to methods."""
        return sum(tally["messages"] for tally in self.tallies.values())

    @property
    def failures(self) -> list[str]:
        """Everything that must not be, in words; empty: the server held."""
        found = [f"{v['what']}: {v['found']}" for v in self.violations]
        found += [f"the log reports a fault: {line[:300]}" for line in self.log_faults]
        found += self.memory.grown(GROWTH_BOUND)
        if not self.planted_same:
            found.append("planted learners answer otherwise than before")
        if not self.planted_same_after_restart:
            found.append("planted learners answer otherwise after a restart")
        if self.exit_code != 0:
            found.append(f"the server ended with {self.exit_code}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "versions": versions(),
            "machine": machine(),
            "settings": {"messages": self.options.messages, "seed": self.options.seed},
            "messages": self.messages,
            "calls": sum(tally["calls"] for tally in self.tallies.values()),
            "seconds": self.seconds,
            "by_method": self.tallies,
            "wire": self.wire,
            "memory": {**self.memory.to_dict(), "slopes_per": f"{PER_UNIT} messages", "growth_bound_mb": GROWTH_BOUND},
            "trainer_restarts": self.trainer_restarts,
            "planted_same": self.planted_same,
            "planted_same_after_restart": self.planted_same_after_restart,
            "exit_code": self.exit_code,
            "failures": self.failures,
            "violations": self.violations,
        }


def run(options: FuzzOptions, progress: ReportProgress = silently) -> FuzzResult:
    """Attack; progress is counted in messages."""
    result = FuzzResult(options)
    wire.largest_file_limit()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sharp-fuzz-") as folder, opened(Path(folder)) as target:
        attacker = Attacker(target)
        number = 0
        while attacker.messages < options.messages and target.alive:
            _round(attacker, result, options, number, progress)
            number += 1
        result.tallies = {
            name: {"calls": tally.calls, "messages": tally.messages, "codes": dict(tally.codes)}
            for name, tally in sorted(attacker.tallies.items())
        }
        result.violations = attacker.violations
        _see_what_is_left(target, result)
    result.seconds = time.perf_counter() - begun
    return result


def _round(attacker: Attacker, result: FuzzResult, options: FuzzOptions, number: int, progress: ReportProgress) -> None:
    """Every method, every kind of file and every trick on the wire, once."""
    target = attacker.target
    seed = options.seed * 1_000_003 + number
    rng = random.Random(seed)
    works: list[tuple[str, Callable[[], Any]]] = [
        (method.path, lambda method=method: attacker.ask(method, options.per_round, seed))  # type: ignore[misc]
        for method in target.methods
    ]
    works += [
        ("hostile images", lambda: attacker.show_pictures(options.per_round, seed)),
        ("hostile snapshots", lambda: attacker.offer_snapshots(options.per_round, seed)),
        ("garbage on the ports", lambda: _count(result, "connections with garbage", wire.send_garbage(target, rng))),
        ("silence on the ports", lambda: _count(result, "silent connections", wire.keep_silent(target, 60))),
        ("dropped streams", lambda: _count(result, "streams opened and dropped", wire.drop_streams(target, 120, rng))),
        ("slow readers", lambda: _count(result, "questions never listened to", wire.read_slowly(target, 400))),
    ]
    works.append(("tidying up", target.tidy))
    for name, work in works:
        progress(name, attacker.messages, options.messages)
        known = len(attacker.violations)
        try:
            _twice_if_paused(work, attacker)
            target.have_victim()
        except Exception as error:  # hypothesis wraps what it found; what matters is in the list already
            if len(attacker.violations) == known:
                attacker.violations.append(
                    {"what": name, "found": f"{type(error).__name__}: {error}"[:600], "sent": ""}
                )
        if not target.alive:
            attacker.violations.append({"what": name, "found": "the server died", "sent": ""})
            return
        result.memory.sample(attacker.messages / PER_UNIT, target.server.memory())


def _twice_if_paused(work: Callable[[], Any], attacker: Attacker) -> None:
    """Do something, and once more if it failed while the whole run stood still."""
    paused, known = attacker.pauses.count, len(attacker.violations)
    try:
        work()
    except Exception:
        if len(attacker.violations) > known or not attacker.target.alive or not attacker.pauses.since(paused):
            raise
        work()


def _count(result: FuzzResult, name: str, number: int) -> None:
    result.wire[name] = result.wire.get(name, 0) + number


def _see_what_is_left(target: FuzzTarget, result: FuzzResult) -> None:
    """Whether what was planted is as it was, now and after a restart, and what the log says."""
    if not target.alive:
        result.exit_code = target.server.exit_code
        result.log_faults = target.log_faults()
        return
    result.trainer_restarts = target.client.get_server_status().trainer.restarts
    result.planted_same = target.state() == target.before
    result.exit_code = target.restart()
    result.planted_same_after_restart = target.state() == target.before
    result.log_faults = target.log_faults()
