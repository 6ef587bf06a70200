"""Corrections: single memories that bend the scores around them, just so far that they are answered right.

score_{c(e)}(x) += margin_e · exp((cos(x, e) − 1) / width), with the cosine in the learned metric. The kernel is narrow,
so that a correction changes the answers for what is much like it, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_ROUNDS = 20
"""Corrections near one another are satisfied in turns, this many times at most; the newest has the last word."""


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

    def bend(self, scores: Tensor, around: Tensor) -> Tensor:
        """Scores (n, classes) of whitened examples around the centre, (n, dimensions), with what corrections add."""
        if not len(self.margins):
            return scores
        nearness = F.normalize(around, dim=1) @ self.directions.T  # (n, corrections)
        bumps = ((nearness - 1.0) / self.width).exp_() * self.margins
        return scores + bumps @ F.one_hot(self.rows, scores.shape[1]).to(bumps.dtype)


def fit_corrections(around: Tensor, rows: Tensor, scores: Tensor, width: float, gap: float) -> Corrections:
    """Margins such that every correction wins by a gap: whitened examples around the centre, classes and scores."""
    directions = F.normalize(around, dim=1)
    kernel = ((directions @ directions.T - 1.0) / width).exp_()  # (n, n)
    margins = torch.zeros(len(rows), device=scores.device)
    bent = scores.clone()
    own = F.one_hot(rows, scores.shape[1]).bool()
    for turn in range(_ROUNDS + 1):
        behind = bent.masked_fill(own, -torch.inf).amax(1) + gap - bent[own]  # (n,) how much each lacks
        short = behind > gap * 1e-3
        if not bool(short.any()):
            break
        if turn == _ROUNDS:  # they contradict each other: one more time for all, oldest first
            short = torch.ones_like(short)
        for place in torch.nonzero(short).squeeze(1).tolist():
            lacks = bent[place].masked_fill(own[place], -torch.inf).amax() + gap - bent[place, rows[place]]
            lacks = lacks.clamp(min=0.0)
            margins[place] += lacks
            bent[:, rows[place]] += lacks * kernel[:, place]
    bending = margins > 0
    return Corrections(directions[bending], rows[bending], margins[bending], width)
