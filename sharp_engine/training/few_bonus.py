"""The bonus of classes that have few examples, and who judges how large it may be.

What is uncertain loses to what is certain: a class of one example gains a bonus, as large as well-known classes can
bear. Their representatives judge that: few of those that are answered right may be lost to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharp_engine.prediction.left_out import leave_out
from sharp_engine.prediction.metric import Coordinates, Frame, Metric
from sharp_engine.training.single_memories import SingleMemories

WELL_KNOWN = 60
"""A class with so many examples gains nothing any more, and may lose to classes that do."""

MOST_JUDGES = 512
"""Representatives on which the bonus is fitted: it is fitted anew whenever something is taught."""

_MOST_BONUS = 4.5
"""Largest bonus, in the calibration's unit."""

_FADING = 3
"""By this power of its newness a class may cost others less: one example may cost half as much again as five may."""


@dataclass(frozen=True)
class Judges:
    """Representatives of well-known classes, in the frame of the sums."""

    v: Tensor
    """(n, dimensions), whitened"""
    at: Coordinates
    rows: Tensor
    """(n,): the class of each"""
    right: Tensor
    """(n,) bool: whether they are answered right, among well-known classes"""

    @classmethod
    def of(cls, single: SingleMemories, metric: Metric, well_known: list[int], leverage: float) -> Judges:
        """Of some representatives, in the metric of the sums; `well_known`: the places of such classes in it."""
        at = metric.coordinates(single.v)
        scores = leave_out(metric, at, single.rows, leverage).scores[:, well_known]
        answers = torch.tensor(well_known, device=scores.device)[scores.argmax(1)]
        return cls(single.v, at, single.rows, answers == single.rows)

    @classmethod
    def joined(cls, parts: Sequence[Judges]) -> Judges:
        """All of them together."""
        columns = zip(*((part.v, part.at.z, part.at.rest, part.rows, part.right) for part in parts), strict=True)
        v, z, rest, rows, right = (torch.cat(column) for column in columns)
        return cls(v, Coordinates(z, rest), rows, right)

    def coordinates(self, frame: Frame) -> Coordinates:
        """In a frame that may have more axes."""
        more = frame.axes[:, self.at.z.shape[1] :]
        if not more.shape[1]:
            return self.at
        z = (self.v - frame.centre) @ more
        return Coordinates(torch.cat((self.at.z, z), dim=1), (self.at.rest - z.square().sum(1)).clamp(min=0.0))

    def largest_bonus(self, metric: Metric, few: Sequence[int], leverage: float, losses: float, unit: float) -> float:
        """At which no more than a share of the judges is lost to classes of few, at places `few` of the metric."""
        left = leave_out(metric, self.coordinates(metric.frame), self.rows, leverage, few)
        newness = metric.bonuses(1.0)[list(few)]
        margin = (left.own[:, None] - left.scores) / newness  # (n, few)
        needed = margin.amin(1)[self.right].sort().values
        # The better a class is known, the less it needs a bonus, and the less it may cost others.
        lost = int(losses * float(newness.max()) ** _FADING * len(self.rows))
        if lost >= len(needed):
            return 0.0
        return min(max(float(needed[lost]), 0.0), _MOST_BONUS * unit)
