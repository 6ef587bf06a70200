"""Known examples, scored as if they had never been learned: what calibration and quality are measured on.

Leaving an example out moves its class's mean away from it, makes the class one example smaller, and widens the
covariance along the example's deviation. The last is a rank-one update: in whitened space the covariance I becomes
I − q·ûûᵀ, with û the direction of the deviation, and the whitening that belongs to it stretches û by 1/√(1 − q). So
nothing has to be fitted again. What classes have in common stays as it was: the axes, how much means vary along them,
and how far the covariance was shrunk.

All that happens in the space of the axes and of one direction more, the example's own beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharp_engine.prediction.metric import Coordinates, Metric

_MOST_LEVERAGE = 0.95
"""An example that makes up more of the covariance along itself than this is taken to make up this much."""


@dataclass(frozen=True)
class LeftOut:
    """Examples that were left out, each in turn."""

    scores: Tensor
    """(n, classes), or as many of them as were asked for"""
    own: Tensor
    """(n,): of their own class"""
    off: Tensor
    """(n, axes): from the mean of their class"""
    novelty: Tensor
    """(n,): how unlike all classes that were asked for they are"""

    @property
    def noise(self) -> float:
        """Mean squared deviation from the class's mean per axis, in the metric's unit."""
        return float(self.off.square().mean()) if self.off.numel() else 1.0  # no axis, no noise along it


def leave_out(
    metric: Metric, at: Coordinates, rows: Tensor, leverage: float, others: Sequence[int] | None = None
) -> LeftOut:
    """Leave examples out, each in turn.

    rows: (n,) the class of each, by its place in the metric; of classes with at least two examples. `leverage`: of the
    whitening. `others`: which classes are to be scored beside the examples' own; all of them, if nothing is said.
    """
    double = torch.float32 if at.z.device.type == "mps" else torch.float64
    counts = metric.counts.to(at.z.device, double)
    axes = at.z.shape[1]
    x = torch.cat((at.z, at.rest.sqrt()[:, None]), dim=1).to(double)  # (n, axes + 1)
    means = torch.cat((metric.places, torch.zeros(len(counts), 1, device=at.z.device)), dim=1).to(double)
    psi = torch.cat((metric.frame.psi.to(at.z.device, double), counts.new_tensor([metric.frame.least])))  # (axes + 1,)
    every = counts[:, None].repeat(1, axes + 1)  # (classes, axes + 1)
    every[:, axes] = counts.max()  # beyond the axes classes are all alike
    own = means[rows]
    u = x - own
    growth = counts[rows] / (counts[rows] - 1.0)
    length = u.square().sum(1)
    share = (leverage * metric.noise * growth * length).clamp(max=_MOST_LEVERAGE)
    stretch = (1.0 - share).rsqrt()[:, None]  # (n, 1)
    unit = u / length.sqrt().clamp(min=1e-30)[:, None]
    x = x + (stretch - 1.0) * unit * (unit * x).sum(1, keepdim=True)
    n = every if others is None else every[list(others)]
    means = means if others is None else means[list(others)]
    along = (stretch - 1.0) * (unit @ means.T)  # (n, classes): how far every mean is stretched along the unit vector
    place, variance, constant = _likelihood(psi, n, axes)
    # (mean + along·unit)·place is where a class predicts examples; the sums over axes, written out.
    linear, square = place / variance, place.square() / variance
    scores = x.square() @ (0.5 / (1.0 + psi) - 0.5 / variance).T + constant
    scores += x @ (linear * means).T + along * ((x * unit) @ linear.T)
    scores -= 0.5 * (square * means.square()).sum(1)
    scores -= along * (unit @ (square * means).T) + 0.5 * along.square() * (unit.square() @ square.T)
    # The example's own class is smaller by one, and its mean lies further off.
    rest = every[rows]
    rest[:, :axes] -= 1.0
    place, variance, constant = _likelihood(psi, rest, axes)
    stretched = own + (stretch - 1.0) * unit * (unit * own).sum(1, keepdim=True)
    moved = stretched - stretch * u / (counts[rows] - 1.0)[:, None]
    apart = (x - place * moved).square() / variance
    likelihood = 0.5 * (x.square() / (1.0 + psi) - apart).sum(1) + constant
    if others is None:
        scores = scores.scatter(1, rows[:, None], likelihood[:, None])
    off = (growth[:, None] * stretch * u)[:, :axes]
    beyond = x[:, axes].square()
    best = scores.amax(1) - (metric.likeness(beyond) - metric.rest_offset)  # along the axes alone
    novelty = -metric.familiarity(best, beyond)
    evening = metric.evening.to(double)
    scores, own = scores + (evening if others is None else evening[list(others)]), likelihood + evening[rows]
    return LeftOut(scores.float(), own.float(), off.float(), novelty.float())


def _likelihood(psi: Tensor, n: Tensor, axes: int) -> tuple[Tensor, Tensor, Tensor]:
    """How far means of n examples are to be believed, the variance of examples about them, and a constant of scores."""
    variance = 1.0 + psi / (1.0 + n * psi)
    ratio = 0.5 * ((1.0 + psi).log() - variance.log())
    return n * psi / (1.0 + n * psi), variance, ratio[:, :axes].sum(1)
