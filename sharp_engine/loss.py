"""The supervised contrastive loss (equation 3 of the paper), averaged over the anchors that have a positive."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def anchors(y: Tensor) -> Tensor:
    """How many examples have a positive: another one of their class. y: (n,) class ids.

    >>> int(anchors(torch.tensor([2, 0, 2, 5, 2])))
    3
    """
    return (torch.bincount(y)[y] > 1).sum()


def supervised_contrastive_loss(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Pull representations of one class together and push the others apart; an anchor without a positive adds nothing.

    z: (n, units) representations, not yet normalised. y: (n,) class ids. Zero if no anchor has a positive.
    """
    z = F.normalize(z, dim=1)  # (n, units); a zero vector stays zero
    similarity = z @ z.T / temperature  # (n, n)
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
    positive = (y[:, None] == y[None, :]) & ~itself  # (n, n)
    positives = positive.sum(1)  # (n,)
    log_total = similarity.masked_fill(itself, -torch.inf).logsumexp(1)  # (n,) over all but the anchor
    per_anchor = log_total - (similarity * positive).sum(1) / positives.clamp(min=1)
    has_positive = positives > 0
    return torch.where(has_positive, per_anchor, 0.0).sum() / has_positive.sum().clamp(min=1)
