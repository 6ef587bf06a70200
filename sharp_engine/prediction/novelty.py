"""How far outside everything learned an example lies, by the network's memories.

An example's ratio to a class is its mean distance to the class's nearest memories over what is usual among those
memories themselves (each left out in turn); its ratio is the least over all classes. Every learned class leaves a few
ratios of its own examples as reference, taken when its episode ends. The novelty score is the share of references
below an example's ratio, so a threshold of 0.95 flags about one in twenty examples of known classes. Beyond the
largest reference the score keeps rising towards 1, so that it still ranks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sharp_engine.memory.long_term import ClassMemory, LongTermMemory

NEIGHBOURS = 5
"""How many of a class's nearest memories its distance is averaged over."""

REFERENCES = 64
"""Most reference ratios kept of a class."""

_LEAST_SPREAD = 1e-3
"""Memories of a class count as at least this far apart: a class of identical examples must not divide by zero."""

_LONE_CLOSENESS = 0.9
"""Usual similarity assumed of a class with a single memory, where no other class has more."""


class NoveltyScale:
    """The references of all classes, sorted."""

    def __init__(self, classes: tuple[ClassMemory, ...], device: torch.device) -> None:
        usual = torch.tensor([2.0 - 2.0 * memory.closeness for memory in classes], device=device)
        # A class's ratio is its distance over what is usual, 2 · (1 − similarity) / usual; as a score, to be maximised:
        self.slope = 2.0 / usual.clamp(min=_LEAST_SPREAD)  # (classes,)
        self.offset = -self.slope
        self._references = torch.cat([memory.reference for memory in classes]).sort().values  # (r,)

    def calibrate(self, ratios: Tensor) -> Tensor:
        """Novelty scores in [0, 1): (n,)."""
        references = self._references
        if not len(references):
            return ratios / (1.0 + ratios)
        at = torch.searchsorted(references, ratios.contiguous())  # references below
        low = torch.where(at > 0, references[(at - 1).clamp(min=0)], 0.0)
        high = references[at.clamp(max=len(references) - 1)]
        part = ((ratios - low) / (high - low).clamp(min=1e-12)).clamp(0.0, 1.0)
        inside = (at + part) / (len(references) + 1)
        excess = (ratios / references[-1].clamp(min=1e-12)).clamp(min=1.0)  # also beyond references of zero
        beyond = 1.0 - torch.exp(1.0 - excess) / (len(references) + 1)
        return torch.where(ratios > references[-1], beyond, inside)


def calibrate(ltm: LongTermMemory) -> LongTermMemory:
    """Set how close every class's memories usually are to one another; a lone one's is that of other classes."""
    closeness = [_own_similarity(memory.vectors) for memory in ltm.classes]
    known = [own for own in closeness if own is not None]
    fallback = float(torch.tensor(known).median()) if known else _LONE_CLOSENESS
    pairs = zip(ltm.classes, closeness, strict=True)
    return replace(
        ltm, classes=tuple(replace(memory, closeness=fallback if own is None else own) for memory, own in pairs)
    )


def _own_similarity(vectors: Tensor) -> float | None:
    """Median similarity of a class's memories to the rest of them; none of a single memory."""
    if len(vectors) < 2:
        return None
    cosine = (vectors @ vectors.T).fill_diagonal_(-torch.inf)  # (n, n)
    nearest = cosine.topk(min(NEIGHBOURS, len(vectors) - 1), dim=1).values  # (n, few)
    return float(nearest.mean(1).median())
