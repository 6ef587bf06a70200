"""A learner taken through a sequence of episodes, and what that took.

The learner is the engine's own, as a user would call it. Nothing here judges it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.datasets import Examples
from benchmarks.paper import scenario
from benchmarks.paper.run import STREAM_BATCH
from sharp_engine import Learner, LearnerConfig, NoPositivePairError, Progress

Report = Callable[[str, float], None]
"""Hears what is going on and which share of it is done."""

MEMORIES = ("semantic", "episodic", "features", "stm", "ltm")
"""Whose bytes are reported; `features` are those of the patch dictionary, `stm` and `ltm` the network's own."""


@dataclass
class Watch:
    """The engine's observer: reports progress, and adds up how long the metric took to answer for each episode."""

    report: Report
    examples: int
    """Of the whole sequence."""
    offered: int = 0
    episodes: int = 0
    metric_seconds: float = 0.0
    _before: float = field(default=0.0, repr=False)

    def __call__(self, progress: Progress) -> None:
        """Take note."""
        if progress.event == "metric-ready":
            self.metric_seconds += progress.seconds
        if progress.event == "episode-learned":
            self.episodes += 1
            self._before = self.offered
        where = f"episode {progress.episode}, phase {progress.phase} of {progress.phases}"
        self.report(where, self._before / max(self.examples, 1))


@dataclass(frozen=True)
class Learned:
    """A learner after its sequence, and what the sequence took."""

    learner: Learner
    seconds: float
    """Of the clock, network included."""
    metric_seconds: float
    """The part until the learned metric answered for each episode."""
    episodes: int
    """Learned; other than given ones where the learner finds the boundaries."""
    examples: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: time, and the bytes of every memory."""
        return {
            "seconds": self.seconds,
            "metric_seconds": self.metric_seconds,
            "episodes": self.episodes,
            "examples": self.examples,
            "bytes": memory_bytes(self.learner),
            "network": network_state(self.learner),
        }


def learn(
    config: LearnerConfig, train: Examples, sequence: Sequence[Sequence[int]], seed: int, report: Report
) -> Learned:
    """Learn all episodes of a sequence; with automatic boundaries, as a stream without marks."""
    learner = Learner(config)
    episodes = scenario.deal(train.y, sequence, seed)
    watch = Watch(report, sum(len(episode.index) for episode in episodes))
    started = time.perf_counter()
    for episode in episodes:
        part = train.take(episode.index)
        watch.offered += len(part)
        if config.stream.boundaries == "explicit":
            learner.learn_episode(part.x, part.y, observer=watch)
            continue
        for at in range(0, len(part), STREAM_BATCH):
            x, y = part.x[at : at + STREAM_BATCH], part.y[at : at + STREAM_BATCH]
            learner.observe(x, y, observer=watch)
    if learner.pending_examples:
        try:
            learner.end_episode(observer=watch)
        except NoPositivePairError:  # too thin a tail for a learner without a metric
            pass
    return Learned(learner, time.perf_counter() - started, watch.metric_seconds, watch.episodes, watch.examples)


def memory_bytes(learner: Learner) -> dict[str, int]:
    """Bytes of every memory, and of all together."""
    now = learner.inspect()
    found = {name: int(getattr(now, f"{name}_bytes")) for name in MEMORIES}
    return {**found, "all": sum(found.values())}


def network_state(learner: Learner) -> dict[str, Any]:
    """What the network adds to the metric."""
    now = learner.inspect()
    return {"weight": now.network_weight, "resting": now.network_resting}
