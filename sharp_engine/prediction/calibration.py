"""How sure an answer is, and how novel an example: fitted on single memories that the metric is made to forget first.

Every class keeps a few representatives. Each is scored as if the metric had never learned it (`left_out.py`), and the
network never trained on those it votes on, so what is fitted here holds for examples not seen yet:
- the noise of unseen examples, which is larger than that of the examples a covariance was estimated from;
- the temperature at which a softmax of scores gives shares that are right as often as they say, in the mean;
- the novelty of examples of known classes, for comparison;
- the weight of the network's vote, at least 0: it may help and cannot hurt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.device import upload
from sharp_engine.prediction.quality import Quality

_ENOUGH = 20
"""Fewer representatives than this say too little: everything stays as it was at the start."""

_MOST = 2048
"""Representatives that calibration looks at; more tell no more."""

_LOWEST, _HIGHEST = 0.02, 200.0
"""Temperatures that are tried."""

_WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Weights that are tried for the network's vote, beside 0."""

_WORTH = 0.01
"""Share of the loss that a vote must save to be worth its time."""

_DEVIATIONS = 2.0
"""… and by how many of its standard errors: a few representatives are soon right by chance."""


@dataclass(frozen=True)
class Calibration:
    """What was fitted; a default one before anything was."""

    noise: float = 1.0
    unit: float = 1.0
    """How many times as sure as they should be scores are; at least 1. What a class of few gains is counted in it."""
    temperature: float = 1.0
    references: Tensor = torch.zeros(0)
    """(r,) float32, sorted, on the CPU: novelty of examples of known classes, least first"""
    weight: float | None = None
    """Of the network's vote; absent before it was fitted."""
    fruitless: int = 0
    """For how many episodes in a row the network's vote has added nothing."""
    quality: Quality | None = None
    """How representatives are answered, by class id; absent before there were enough."""

    def shares(self, scores: Tensor) -> Tensor:
        """Shares of classes from their scores: (n, classes)."""
        return torch.softmax(scores / self.temperature, dim=1)

    def novelty(self, familiarity: Tensor) -> Tensor:
        """Novelty in [0, 1] from how familiar each example is, (n,): the share of references that are less novel.

        A threshold of 0.95 flags about one in twenty examples of known classes. Beyond the most novel reference it
        keeps rising towards 1, so that it still ranks.
        """
        value, references = -familiarity, upload(self.references, familiarity.device)
        count = len(references)
        if count < 2:
            return torch.sigmoid(value / max(self.temperature, 1.0))
        at = torch.searchsorted(references, value.contiguous())
        low, high = references[(at - 1).clamp(min=0)], references[at.clamp(max=count - 1)]
        part = ((value - low) / (high - low).clamp(min=1e-12)).clamp(0.0, 1.0)
        inside = (at + part).clamp(min=0.5) / (count + 1)
        spread = (references[-1] - references[count // 2]).clamp(min=1e-6)
        below = torch.exp((value - references[0]) / spread) * 0.5 / (count + 1)
        beyond = 1.0 - torch.exp((references[-1] - value) / spread) / (count + 1)
        return torch.where(value > references[-1], beyond, torch.where(value < references[0], below, inside))


def enough(representatives: int) -> bool:
    """Whether so many representatives allow anything to be fitted."""
    return representatives >= _ENOUGH


def sample(count: int) -> Tensor:
    """Which of so many representatives are looked at: (at most 2048,)."""
    return torch.arange(count) if count <= _MOST else torch.linspace(0, count - 1, _MOST).round().long()


def fit_temperature(scores: Tensor, rows: Tensor) -> float:
    """The temperature at which shares say how many answers are right, on examples of known class: scores (n, classes).

    However many are right, the next one may be wrong: the mean share is (right + 1) / (n + 2). The temperature of least
    loss (`fit_sureness`) would be too high: it is there for the few answers that are far off.
    """
    right = int((scores.argmax(1) == rows).sum())
    wanted = (right + 1) / (len(rows) + 2)
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    for _ in range(40):  # the mean share falls as the temperature rises
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_share(scores, middle) > wanted else (low, middle)
    return math.exp(high)


def fit_sureness(scores: Tensor, rows: Tensor) -> float:
    """How many times as sure as they should be scores (n, classes) are: the temperature of least loss."""
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    for _ in range(40):  # the loss falls, then rises
        first, second = low + (high - low) / 3, high - (high - low) / 3
        if _loss_at(scores, rows, first) < _loss_at(scores, rows, second):
            high = second
        else:
            low = first
    return math.exp((low + high) / 2)


def _loss_at(scores: Tensor, rows: Tensor, logarithm: float) -> float:
    return float(F.cross_entropy(scores / math.exp(logarithm), rows))


def _mean_share(scores: Tensor, logarithm: float) -> float:
    return float(torch.softmax(scores / math.exp(logarithm), dim=1).amax(1).mean())


def fit_weight(scores: Tensor, votes: Tensor, rows: Tensor) -> float:
    """The weight at which votes (n, classes) help scores most, or 0 where it may be by chance that they help."""
    alone = _losses(scores, rows)
    needed, best = float(alone.mean()) * _WORTH, 0.0
    right = int((scores.argmax(1) == rows).sum())
    unit = fit_sureness(scores, rows)
    for weight in _WEIGHTS:
        joined = scores + weight * unit * votes
        saved = alone - _losses(joined, rows)  # (n,)
        sure = float(saved.mean()) > _DEVIATIONS * float(saved.std()) / len(rows) ** 0.5
        if sure and float(saved.mean()) > needed and int((joined.argmax(1) == rows).sum()) >= right:
            needed, best = float(saved.mean()), weight * unit
    return best


def _losses(scores: Tensor, rows: Tensor) -> Tensor:
    return F.cross_entropy(scores / fit_sureness(scores, rows), rows, reduction="none")
