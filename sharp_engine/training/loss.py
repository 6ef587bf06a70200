"""The supervised contrastive loss (equation 3 of the paper), averaged over the anchors that have a positive."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import AnchorLosses


def reduce_anchor_losses(mean: Tensor, y: Tensor, anchor_losses: AnchorLosses) -> Tensor:
    """What a step descends: the mean over the anchors, or their sum. An anchor has a positive, another of its class.

    >>> reduce_anchor_losses(torch.tensor(0.5), torch.tensor([2, 0, 2, 5, 2]), "sum")
    tensor(1.5000)
    """
    if anchor_losses == "mean":
        return mean
    return mean * ((y[:, None] == y[None, :]).sum(1) > 1).sum()  # counting by class would wait for the device


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
