"""Whether the fiftieth episode costs what the third does, in time and in memory."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.datasets import synthetic
from benchmarks.speed.timing import Spent, spent_on
from devtools.process_stats import resident_bytes
from sharp_engine import Learner, LearnerConfig

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

    spent: tuple[Spent, ...]
    resident: tuple[int | None, ...]
    """Bytes of the process after each episode."""
    ltm: tuple[int, ...]
    """Bytes of long-term memory after each episode."""

    @property
    def ratio(self) -> float:
        """Processor time of the last episode over that of the third."""
        return self.spent[-1].cpu / self.spent[EARLY - 1].cpu

    @property
    def smooth_ratio(self) -> float:
        """The same between medians of a few episodes at both ends, which single hiccups do not move."""
        early = statistics.median(s.cpu for s in self.spent[EARLY - 1 : EARLY - 1 + _SMOOTHED])
        return statistics.median(s.cpu for s in self.spent[-_SMOOTHED:]) / early

    @property
    def unexplained_bytes(self) -> int | None:
        """Growth of the process from the third episode to the last, less that of long-term memory."""
        first, last = self.resident[EARLY - 1], self.resident[-1]
        return None if first is None or last is None else last - first - (self.ltm[-1] - self.ltm[EARLY - 1])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "episodes": len(self.spent),
            "cpu_seconds": [s.cpu for s in self.spent],
            "wall_seconds": [s.wall for s in self.spent],
            "resident_bytes": list(self.resident),
            "ltm_bytes": list(self.ltm),
            "cpu_ratio_last_to_third": self.ratio,
            "cpu_ratio_of_medians": self.smooth_ratio,
            "unexplained_bytes": self.unexplained_bytes,
            "target": TARGET,
        }


def measure(config: LearnerConfig, episodes: int, per_class: int, learned: Callable[[int], None]) -> Growth:
    """Learn so many episodes of two made-up classes each; `learned` hears of each one."""
    learner = Learner(config)
    spent, resident, ltm = [], [], []
    for episode in range(episodes):
        part = synthetic.images(_CLASSES, per_class, _SHAPE, first=_CLASSES * episode)
        spent.append(spent_on(lambda part=part: learner.learn_episode(part.x, part.y)))  # type: ignore[misc]
        gc.collect()
        resident.append(resident_bytes())
        ltm.append(learner.inspect().ltm_bytes)
        learned(episode + 1)
    return Growth(tuple(spent), tuple(resident), tuple(ltm))
