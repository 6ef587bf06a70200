"""Whether the hundredth episode costs what the third does, in time and in memory.

A network that has come to rest costs nothing any more, which would hide a metric that grows: the part until the metric
answers is compared by itself too.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.datasets import synthetic
from benchmarks.learner.learning import memory_bytes
from benchmarks.speed.metric_clock import EpisodeCost, learn_timed
from devtools.process_stats import resident_bytes
from sharp_engine import Learner, LearnerConfig
from sharp_server.runtime import malloc

TARGET = 1.2
EARLY = 3
"""The episode that the last one is compared with: the first two have not all the work yet."""

_CLASSES = 2
_SHAPE = (1, 28, 28)
_SMOOTHED = 5
"""Episodes whose median is compared, beside the two single ones."""


@dataclass(frozen=True)
class Growth:
    """Episode by episode."""

    costs: tuple[EpisodeCost, ...]
    resident: tuple[int | None, ...]
    """Bytes of the process after each episode, without what was freed and not returned to the system."""
    memories: tuple[int, ...]
    """Bytes of all of the learner's memories after each episode."""

    @property
    def ratio(self) -> float:
        """Processor time of the last episode over that of the third."""
        return self.costs[-1].whole.cpu / self.costs[EARLY - 1].whole.cpu

    @property
    def smooth_ratio(self) -> float:
        """The same between medians of a few episodes at both ends, which single hiccups do not move."""
        return _of_medians([cost.whole.cpu for cost in self.costs])

    @property
    def metric_ratio(self) -> float:
        """The same for the part until the metric answers."""
        return _of_medians([cost.metric.cpu for cost in self.costs])

    @property
    def unexplained_bytes(self) -> float | None:
        """By how much the process grows with an episode, less what the memories grow: a line through all episodes from
        the third on, as single readings go up and down by what was freed a moment before.
        """
        readings = list(zip(self.resident, self.memories, strict=True))[EARLY - 1 :]
        beyond = [now - known for now, known in readings if now is not None]
        return float(np.polyfit(range(len(beyond)), beyond, 1)[0]) if len(beyond) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "episodes": len(self.costs),
            "cpu_seconds": [cost.whole.cpu for cost in self.costs],
            "wall_seconds": [cost.whole.wall for cost in self.costs],
            "metric_cpu_seconds": [cost.metric.cpu for cost in self.costs],
            "resident_bytes": list(self.resident),
            "memory_bytes": list(self.memories),
            "cpu_ratio_last_to_third": self.ratio,
            "cpu_ratio_of_medians": self.smooth_ratio,
            "metric_cpu_ratio_of_medians": self.metric_ratio,
            "unexplained_bytes_per_episode": self.unexplained_bytes,
            "target": TARGET,
        }


def measure(config: LearnerConfig, episodes: int, per_class: int, learned: Callable[[int], None]) -> Growth:
    """Learn so many episodes of two made-up classes each; `learned` hears of each one."""
    learner = Learner(config)
    costs, resident, memories = [], [], []
    for episode in range(episodes):
        part = synthetic.images(_CLASSES, per_class, _SHAPE, first=_CLASSES * episode)
        costs.append(learn_timed(learner, part))
        gc.collect()
        malloc.return_freed_memory()
        resident.append(resident_bytes())
        memories.append(memory_bytes(learner)["all"])
        learned(episode + 1)
    return Growth(tuple(costs), tuple(resident), tuple(memories))


def _of_medians(seconds: Sequence[float]) -> float:
    early = statistics.median(seconds[EARLY - 1 : EARLY - 1 + _SMOOTHED])
    return statistics.median(seconds[-_SMOOTHED:]) / early
