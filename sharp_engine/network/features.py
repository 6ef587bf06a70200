"""What the learned metric compares: features that never change, and random features of them.

A `Scale` gives every feature a mean of 0 and a deviation of 1 on the first examples ever seen, and is never changed
again. The map φ(s) = (s, cos(R·s + b)), or with ReLU for the cosine, keeps s itself, so that a poor first scale costs
little; R and b come from the learner's seed and are not stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import RandomFunction

_ENOUGH = 20
"""From so many examples on, every feature has a mean and a deviation of its own."""

_OTHER_UNITS = 100.0
"""Features whose sizes differ by more than this are in different units."""

_CONSTANT = 1e-6
"""A feature whose deviation is smaller than this share of its size counts as constant."""

_FURTHEST = 1e4
"""No scaled feature lies further out: sums of squares stay finite, whatever is sent."""

_LARGEST = 5.0
"""Random features see no value further out than this: a feature that was still at first must not drown the others."""

_FREQUENCY = 0.7
"""Deviation of what a cosine sees of one example: products of cosines then fall to about exp(−d²/4), with d² the mean
square by which two examples differ in a feature."""

_MANY, _GROUP = 1000, 225
"""From so many stable features on, each random one sees only a group of about so many."""


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of every feature, from the first examples."""

    mean: Tensor
    """(features,)"""
    deviation: Tensor
    """(features,), positive"""

    def __call__(self, features: Tensor) -> Tensor:
        """Scaled features: (n, features)."""
        return ((features - self.mean) / self.deviation).clamp_(-_FURTHEST, _FURTHEST)


def learn_scale(features: Tensor) -> Scale:
    """A scale from features (n, features) of whatever number of examples.

    Few examples say little of each feature by itself: they give no mean, and one deviation for all, unless features are
    of such different sizes that they must be in different units.
    """
    device, features = features.device, features.to("cpu", torch.float64)  # no square may overflow
    size = features.square().mean().sqrt()
    fallback = size if float(size) > 0 else torch.ones_like(size)
    if len(features) < _ENOUGH:
        sizes = features.square().mean(0).sqrt()
        deviation, shown = fallback.expand(len(sizes)), sizes[sizes > 0]
        if len(shown) and float(shown.quantile(0.9)) > _OTHER_UNITS * float(shown.quantile(0.1)):
            deviation = torch.where(sizes > 0, sizes, shown.median())
        return _scale(torch.zeros_like(sizes), deviation, device)
    mean, deviation = features.mean(0), features.std(0)
    varies = deviation > _CONSTANT * features.abs().amax(0)
    if bool(varies.any()):
        fallback = deviation[varies].median()
    return _scale(mean, torch.where(varies, deviation, fallback), device)


def _scale(mean: Tensor, deviation: Tensor, device: torch.device) -> Scale:
    deviation = deviation.to(torch.float32).clamp(min=torch.finfo(torch.float32).tiny)
    return Scale(mean.to(device, torch.float32), deviation.to(device))


class FeatureMap:
    """φ: stable features, and random features of them, cosines or ReLU.

    Where there are many stable features, each random one sees a group of them: as good, and so many times cheaper.
    """

    def __init__(
        self, features: int, random_features: int, seed: int, device: torch.device, function: RandomFunction
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.stable = features
        self.dimensions = features + random_features
        self._groups = round(features / _GROUP) if features >= _MANY else 1
        width, each = -(-features // self._groups), -(-random_features // self._groups)
        projection = torch.randn(self._groups, width, each, generator=generator) / math.sqrt(width)
        if function == "cosine":
            bias = 2.0 * math.pi * torch.rand(self._groups, 1, each, generator=generator)
            projection, self._activate = _FREQUENCY * projection, torch.cos_
        else:
            bias = torch.randn(self._groups, 1, each, generator=generator)
            self._activate = torch.relu_
        if self._groups == 1:
            projection, bias = projection[0], bias[0]
        self._projection, self._bias = projection.to(device), bias.to(device)

    def __call__(self, s: Tensor) -> Tensor:
        """φ of scaled features s: (n, dimensions)."""
        if self.dimensions == self.stable:
            return s
        seen = s.clamp(-_LARGEST, _LARGEST)
        if self._groups == 1:
            return torch.cat((s, self._activate(torch.addmm(self._bias, seen, self._projection))), dim=1)
        groups, width, _ = self._projection.shape
        grouped = F.pad(seen, (0, groups * width - self.stable)).view(len(s), groups, width).transpose(0, 1)
        found = self._activate(torch.baddbmm(self._bias, grouped, self._projection))  # (groups, n, random of each)
        return torch.cat((s, found.transpose(0, 1).flatten(1)[:, : self.dimensions - self.stable]), dim=1)
