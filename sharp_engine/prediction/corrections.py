"""Corrections: single memories that bend the scores around them, just so far that they are answered right.

score_{c(e)}(x) += margin_e · exp((cos(x, e) − 1) / width), with the cosine in the learned metric. The kernel is narrow,
so that a correction changes the answers for what is much like it, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

_ROUNDS = 20
"""Corrections near one another are satisfied in turns, this many times at most; the newest has the last word."""

_BLOCK = 16
"""Corrections per product of directions."""


@dataclass(frozen=True)
class Corrections:
    """Corrections that bend something; those that are answered right anyway have a margin of 0."""

    directions: Tensor
    """(corrections, dimensions): whitened, about the metric's centre, of length 1"""
    rows: Tensor
    """(corrections,): the class of each, by its place in the metric"""
    margins: Tensor
    """(corrections,)"""
    width: float

    @classmethod
    def none(cls, dimensions: int, device: torch.device) -> Corrections:
        """Nothing is bent."""
        nothing = torch.zeros(0, device=device)
        return cls(nothing.new_zeros(0, dimensions), nothing.to(torch.int64), nothing, 1.0)

    def bend(self, scores: Tensor, around: Tensor) -> Tensor:
        """Scores (n, classes) of whitened examples around the centre, (n, dimensions), with what corrections add."""
        if not len(self.margins):
            return scores
        nearness = F.normalize(around, dim=1) @ self.directions.T  # (n, corrections)
        bumps = ((nearness - 1.0) / self.width).exp_() * self.margins
        return scores + bumps @ F.one_hot(self.rows, scores.shape[1]).to(bumps.dtype)


@dataclass(frozen=True)
class Nearness:
    """Cosines between all corrections, in blocks of one fixed shape: those of old ones need not be computed again."""

    directions: Tensor
    """(blocks, corrections of a block, dimensions), filled up with zeros"""
    cosines: Tensor
    """(blocks, blocks, corrections of a block, corrections of a block)"""
    count: int
    """How many corrections are none of the filling."""

    @classmethod
    def of(cls, around: Tensor, before: Nearness | None) -> Nearness:
        """Of whitened corrections around the centre: (corrections, dimensions), at least one."""
        blocks = -(-len(around) // _BLOCK)
        padded = torch.zeros(blocks * _BLOCK, around.shape[1], device=around.device)
        padded[: len(around)] = F.normalize(around, dim=1)
        directions = padded.view(blocks, _BLOCK, -1)
        cosines = torch.zeros(blocks, blocks, _BLOCK, _BLOCK, device=around.device)
        changed = list(range(blocks))
        if before is not None:
            old = min(blocks, len(before.directions))
            same = (directions[:old] == before.directions[:old]).flatten(1).all(1).tolist()
            changed = [i for i in range(blocks) if i >= old or not same[i]]
            cosines[:old, :old] = before.cosines[:old, :old]
        for i in changed:
            for j in range(blocks):
                later, earlier = max(i, j), min(i, j)
                between = directions[later] @ directions[earlier].T
                cosines[later, earlier] = between
                cosines[earlier, later] = between.T
        return cls(directions, cosines, len(around))

    @property
    def unit(self) -> Tensor:
        """Directions of length 1: (corrections, dimensions)."""
        return self.directions.flatten(0, 1)[: self.count]

    @property
    def matrix(self) -> Tensor:
        """(corrections, corrections)."""
        whole = self.cosines.transpose(1, 2).flatten(2, 3).flatten(0, 1)
        return whole[: self.count, : self.count]


def fit_corrections(nearness: Nearness, rows: Tensor, scores: Tensor, width: float, gap: float) -> Corrections:
    """Margins such that every correction wins by a gap, from their classes (n,) and scores (n, classes)."""
    margins = torch.from_numpy(_margins(nearness, rows, scores, width, gap)).to(scores.device)
    bending = margins > 0
    return Corrections(nearness.unit[bending], rows[bending], margins[bending], width)


def _margins(nearness: Nearness, rows: Tensor, scores: Tensor, width: float, gap: float) -> NDArray[np.float32]:
    """They depend on one another in turn: plain arrays are quicker than tensors here."""
    own = rows.cpu().numpy()
    each = np.arange(len(own))
    bent = scores.cpu().numpy().copy()
    kernel: NDArray[np.float32] | None = None
    margins = np.zeros(len(own), dtype=np.float32)

    def lacking(which: NDArray[np.intp]) -> NDArray[np.float32]:
        others = bent[which]
        mine = others[each[: len(which)], own[which]].copy()
        others[each[: len(which)], own[which]] = -np.inf
        found: NDArray[np.float32] = others.max(axis=1) + np.float32(gap) - mine
        return found

    for turn in range(_ROUNDS + 1):
        short = lacking(each) > gap * 1e-3
        if not short.any():
            break
        if turn == _ROUNDS:  # they contradict each other: one more time for all, oldest first
            short[:] = True
        if kernel is None:
            kernel = ((nearness.matrix - 1.0) / width).exp_().cpu().numpy()
        for place in np.flatnonzero(short):
            lacks = max(lacking(each[place : place + 1])[0], np.float32(0.0))
            margins[place] += lacks
            bent[:, own[place]] += lacks * kernel[:, place]
    return margins
