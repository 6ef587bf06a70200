"""How long a single-image prediction takes at a fixed rate: idle, while an episode is learned, and while versions swap.

The empty service is asked at the same rate, idle and while learning: what training does to it is done by the machine
and by the load generator, not by the server.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.reporting.runner import ReportProgress
from benchmarks.serving.background import in_background
from benchmarks.serving.bench import LEARNER, Bench, teach
from benchmarks.serving.options import LATENCY_TARGET

_MOST_EXAMPLES = 400_000


@dataclass
class Latency:
    """One state of the server; medians over rounds."""

    name: str
    p50: list[float] = field(default_factory=list)
    """Seconds, round by round."""
    p99: list[float] = field(default_factory=list)
    requests: int = 0
    failures: int = 0
    versions: int = 0
    """New versions that came to serve meanwhile."""
    trained: list[float] = field(default_factory=list)
    """Share of the time in which the server was training, round by round."""
    at_once: bool = True
    """Whether the load generator never waited for the trainer's turn on their core; else that counts as latency."""

    def add(self, found: dict[str, Any]) -> None:
        """Take in a round."""
        self.requests += len(found["latencies"]) + sum(found["failures"].values())
        self.failures += sum(found["failures"].values())
        p50, p99 = np.percentile(found["latencies"] or [float("nan")], [50, 99]).tolist()
        self.at_once &= found["at_once"]
        self.p50.append(p50)
        self.p99.append(p99)

    def against(self, other: Latency) -> tuple[float, float]:
        """Median ratios of p50 and p99 to another state, round by round."""
        pairs50, pairs99 = zip(self.p50, other.p50, strict=True), zip(self.p99, other.p99, strict=True)
        return statistics.median(a / b for a, b in pairs50), statistics.median(a / b for a, b in pairs99)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "p50_seconds": statistics.median(self.p50),
            "p99_seconds": statistics.median(self.p99),
            "p50_by_round": self.p50,
            "p99_by_round": self.p99,
            "requests": self.requests,
            "failures": self.failures,
            "versions": self.versions,
            "load_at_once": self.at_once,
            "trained_share": statistics.median(self.trained) if self.trained else None,
        }


@dataclass
class Latencies:
    """All states at one rate."""

    rate: float
    """Requests per second."""
    idle: Latency = field(default_factory=lambda: Latency("idle"))
    learning: Latency = field(default_factory=lambda: Latency("while learning"))
    swapping: Latency = field(default_factory=lambda: Latency("during version swaps"))
    empty_idle: Latency = field(default_factory=lambda: Latency("empty service, idle"))
    empty_learning: Latency = field(default_factory=lambda: Latency("empty service, while learning"))

    def rows(self) -> Iterator[tuple[Latency, Latency, float | None]]:
        """(state, what it is compared with, the ratio of p99 to reach)."""
        yield self.idle, self.idle, None
        yield self.learning, self.idle, LATENCY_TARGET
        yield self.swapping, self.idle, LATENCY_TARGET
        yield self.empty_idle, self.empty_idle, None
        yield self.empty_learning, self.empty_idle, None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        states = []
        for state, base, target in self.rows():
            p50, p99 = state.against(base)
            states.append({**state.to_dict(), "p50_ratio": p50, "p99_ratio": p99, "target": target})
        return {"rate": self.rate, "states": states}


def latencies(bench: Bench, rate: float, progress: ReportProgress) -> Latencies:
    """Measure every state in every round."""
    result = Latencies(rate)
    server, empty, rounds = bench.server.address, bench.empty.address, bench.options.sizes.latency_rounds
    bench.ask(server, rate=rate)  # warms up
    for number in range(1, rounds + 1):
        progress(f"latency: idle, round {number} of {rounds}")
        result.idle.add(bench.ask(server, rate=rate))
        result.empty_idle.add(bench.ask(empty, rate=rate))
        progress(f"latency: while learning, round {number} of {rounds}")
        with long_episode(bench), watched(bench, result.learning):
            result.learning.add(bench.ask(server, rate=rate))
            result.empty_learning.add(bench.ask(empty, rate=rate))
        progress(f"latency: during version swaps, round {number} of {rounds}")
        with _short_episodes(bench), watched(bench, result.swapping):
            result.swapping.add(bench.ask(server, rate=rate))
    return result


@contextmanager
def long_episode(bench: Bench) -> Iterator[None]:
    """An episode that takes longer to learn than two measurements; ends when it is learned."""
    wanted = 5.0 * bench.options.seconds * bench.train_rate
    episode = bench.sample(int(min(max(wanted, 256), _MOST_EXAMPLES)) // 2)
    teacher = threading.Thread(target=teach, args=(bench.client, episode))
    teacher.start()
    while teacher.is_alive() and not _training(bench):
        time.sleep(0.01)
    try:
        yield
    finally:
        teacher.join()


@contextmanager
def _short_episodes(bench: Bench) -> Iterator[None]:
    """Episodes of a few examples, one after the other, each a version."""
    episode = bench.sample(bench.options.sizes.swap_examples)

    def keep_teaching(stop: threading.Event) -> None:
        while not stop.is_set():
            teach(bench.client, episode)

    with in_background(keep_teaching):
        yield


@contextmanager
def watched(bench: Bench, state: Latency) -> Iterator[None]:
    """Note how much of the time was spent in training, and how many versions came."""
    before, seen = bench.client.learner(LEARNER).status().model_version, [0, 0]

    def look(stop: threading.Event) -> None:
        while not stop.wait(0.2):
            seen[_training(bench)] += 1

    with in_background(look):
        yield
    state.trained.append(seen[1] / max(1, sum(seen)))
    state.versions += bench.client.learner(LEARNER).status().model_version - before


def _training(bench: Bench) -> bool:
    return bench.client.learner(LEARNER).status().training_episode != 0
