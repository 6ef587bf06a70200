"""Single memories as calibration needs them: representatives, whitened, each scored as if it had never been learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharp_engine.memory.episodic import Representatives
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.network.features import FeatureMap
from sharp_engine.prediction.calibration import sample
from sharp_engine.prediction.left_out import LeftOut, leave_out
from sharp_engine.prediction.metric import Metric, Whitening

_SETTLED = 10
"""A class with so many examples has a mean that is near enough to its place: what lies off it is noise."""


@dataclass(frozen=True)
class SingleMemories:
    """Representatives, for calibration."""

    s: Tensor
    """(n, features)"""
    v: Tensor
    """(n, dimensions), whitened"""
    rows: Tensor
    """(n,): the class of each, by its place in the metric"""
    held_out: Tensor
    """(n,) bool: whether the network never trained on it"""

    @classmethod
    def of(
        cls, classes: Sequence[Representatives], semantic: SemanticMemory, features: FeatureMap, whitening: Whitening
    ) -> SingleMemories:
        """Of some classes, or a sample of them."""
        place = {class_id: row for row, class_id in enumerate(semantic.class_ids)}
        every = torch.tensor([place[c.class_id] for c in classes for _ in c.features])
        chosen = sample(len(every))
        s = torch.cat([c.features for c in classes])[chosen.to(semantic.means.device)].float()
        held_out = torch.cat([c.held_out for c in classes])[chosen].to(s.device)
        return cls(s, whitening(features(s)), every[chosen].to(s.device), held_out)

    def settled(self, counts: Tensor) -> Tensor:
        """Which are of classes of more than a few examples, or all of them, if those are less than half: (n,) bool."""
        chosen = (counts >= _SETTLED).to(self.rows.device)[self.rows]
        return chosen if 2 * int(chosen.sum()) >= len(chosen) else torch.ones_like(chosen)

    def take(self, chosen: Tensor) -> SingleMemories:
        """Some of them, or all: chosen is (n,) bool."""
        if bool(chosen.all()):
            return self
        return SingleMemories(self.s[chosen], self.v[chosen], self.rows[chosen], self.held_out[chosen])

    def left_out(self, metric: Metric, whitening: Whitening) -> LeftOut:
        """As if they had never been learned."""
        return leave_out(metric, metric.coordinates(self.v), self.rows, whitening.leverage)

    def noise(self, metric: Metric, whitening: Whitening) -> float:
        """Mean squared deviation from the class's mean per axis, as if they had never been learned."""
        one = (0,)  # which classes are scored makes no difference: as few as can be
        return leave_out(metric, metric.coordinates(self.v), self.rows, whitening.leverage, one).noise
