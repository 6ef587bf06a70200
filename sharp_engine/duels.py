"""Duels: the leading classes of a vote are compared pair by pair, with a metric learned on long-term memory alone.

Classes of different episodes live on different masks, but masks are nested: whatever the older of two classes lives on,
the younger one's memories cover too. So both can be compared there, by a linear discriminant: the difference of their
means, seen through the inverse of the covariance that memories have around the means of their classes. The paper leaves
a learned metric to future work. It needs nothing but the memories, never an example, and is made anew whenever they
change.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.ltm import ClassMemory

LEADING = 4
"""So many classes meet each other."""

_CALM = 4.0
"""Discriminants are estimated from few memories and too sure of themselves: their logits are divided by this."""

_TRUST = 2.0
"""Weight of the vote's own shares; the share of duels that a class won has weight 1."""

_SHRINKAGE = 0.1
"""Share of the covariance that is replaced by an even one: there are fewer memories than units."""

_LEAST_VARIANCE = 1e-6
"""Per unit: classes of identical memories must not divide by zero."""

_MOST_MASKS = 16
"""On which classes are compared: bounds the memory of the discriminants, groups × classes × units."""

_MOST_MEMORIES = 256
"""From which a covariance is estimated."""


class Duels:
    """Discriminants between all pairs of classes, on masks that cover both."""

    def __init__(self, classes: tuple[ClassMemory, ...], units: Tensor) -> None:
        """`units`: indices, among all output units, of those that representations will have."""
        device = units.device
        covers = torch.stack([memory.mask[units] for memory in classes])  # (classes, units)
        masks = _spread(torch.unique(covers, dim=0))  # (masks, units)
        vectors = torch.cat([_widened(memory, units) for memory in classes])  # (entries, units)
        counts = torch.tensor([len(memory.vectors) for memory in classes], device=device)
        owner = torch.arange(len(classes), device=device).repeat_interleave(counts)  # (entries,)
        inside = (masks.float() @ (~covers).float().T) == 0  # (masks, classes): the mask lies within the class's
        # A last row of zeros is for pairs that no mask covers: their duels are a draw.
        self._weights = torch.zeros(len(masks) + 1, len(classes), len(units), device=device)
        self._offsets = torch.zeros(len(masks) + 1, len(classes), device=device)
        for row, mask in enumerate(masks):
            valid = torch.nonzero(inside[row]).squeeze(1)
            weights, offsets = _discriminants(vectors[:, mask], owner, valid)
            self._weights[row, valid[:, None], torch.nonzero(mask).T] = weights
            self._offsets[row, valid] = offsets
        self._masks = torch.cat((masks.float(), torch.zeros(1, len(units), device=device))).T.contiguous()
        # (classes, classes): the mask on which a pair is compared, the largest that covers both
        self._judge = torch.full((len(classes), len(classes)), len(masks), device=device)
        for row, within in enumerate(inside):  # from the smallest to the largest
            self._judge[within[:, None] & within[None, :]] = row

    def settle(self, z: Tensor, share: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Shares and classes of a vote, (n, looked at) each, after its leaders have met. z: (n, units)."""
        leaders = min(LEADING, order.shape[1])
        if leaders < 2:
            return share, order
        total = _TRUST * share  # (n, looked at)
        total[:, :leaders] += self._won(z, order[:, :leaders])
        total /= _TRUST + leaders / 2.0  # each of the pairs gives one point, shared out over a class's duels
        place = total.argsort(dim=1, descending=True, stable=True)
        return total.gather(1, place), order.gather(1, place)

    def _won(self, z: Tensor, leaders: Tensor) -> Tensor:
        """Mean of each leader's shares in its duels: (n, leaders)."""
        pairs = list(itertools.combinations(range(leaders.shape[1]), 2))
        one, other = leaders[:, [i for i, _ in pairs]], leaders[:, [j for _, j in pairs]]  # (n, pairs)
        judge = self._judge[one, other]  # (n, pairs)
        weights = self._weights[judge, one] - self._weights[judge, other]  # (n, pairs, units)
        length = ((z * z) @ self._masks).sqrt_().clamp_(min=1e-15)  # (n, masks + 1)
        logits = (weights @ z[:, :, None]).squeeze(2) / length.gather(1, judge)
        logits += self._offsets[judge, one] - self._offsets[judge, other]
        points = torch.sigmoid(logits / _CALM)  # (n, pairs)
        won = torch.zeros(leaders.shape, device=z.device)
        for pair, (i, j) in enumerate(pairs):
            won[:, i] += points[:, pair]
            won[:, j] += 1.0 - points[:, pair]
        return won / (leaders.shape[1] - 1)


def _discriminants(vectors: Tensor, owner: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (c, units) and offsets (c,) of some classes: a larger weights · x + offset is nearer to the class.

    vectors: (entries, units), of which only those of the given classes, (c,), are looked at.
    """
    means, residuals = [], []
    for class_id in classes:
        own = F.normalize(vectors[owner == class_id], dim=1).double()
        means.append(own.mean(0))
        residuals.append(own - means[-1])
    mean = torch.stack(means)  # (c, units)
    spread = torch.cat(residuals)  # (entries, units)
    spread = spread[:: max(1, -(-len(spread) // _MOST_MEMORIES))]
    # Covariance = even · 1 + spreadᵀ spread · share, inverted on the side of the entries, which are fewer than units.
    share = (1.0 - _SHRINKAGE) / len(spread)
    even = _SHRINKAGE * spread.square().sum(1).mean() / spread.shape[1]
    even = even.clamp(min=_LEAST_VARIANCE)
    inner = share * (spread @ spread.T)  # (entries, entries)
    inner.diagonal().add_(even)
    correction = torch.linalg.solve(inner, share * (spread @ mean.T))  # (entries, c)
    weights = (mean - (spread.T @ correction).T) / even  # (c, units)
    return weights.float(), (-0.5 * (weights * mean).sum(1)).float()


def _widened(memory: ClassMemory, units: Tensor) -> Tensor:
    """A class's memories over the given units: (n, units)."""
    wide = torch.zeros(len(memory.vectors), len(memory.mask), device=units.device)
    wide[:, memory.mask] = memory.vectors
    return wide[:, units]


def _spread(masks: Tensor) -> Tensor:
    """At most so many of the masks as are compared on, evenly from the smallest to the largest."""
    masks = masks[masks.sum(1).argsort(stable=True)]
    masks = masks[masks.any(1)]
    if len(masks) <= _MOST_MASKS:
        return masks
    return masks[torch.linspace(0, len(masks) - 1, _MOST_MASKS).round().long()]
