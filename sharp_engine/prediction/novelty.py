"""How far outside everything learned an example lies, and scales on which classes can be compared.

An example's ratio to a class is its mean distance to the class's nearest memories over what is usual among those
memories themselves (each left out in turn); its ratio is the least over all classes. Every learned class leaves a few
ratios of its own examples as reference, taken when its episode ends. The novelty score is the share of references
below an example's ratio, so a threshold of 0.95 flags about one in twenty examples of known classes. Beyond the
largest reference the score keeps rising towards 1, so that it still ranks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.memory.long_term import ClassMemory, LongTermMemory

NEIGHBOURS = 5
"""How many of a class's nearest memories its distance is averaged over."""

REFERENCES = 64
"""Most reference ratios kept of a class."""

_LEAST_SPREAD = 1e-3
"""Memories of a class count as at least this far apart: a class of identical examples must not divide by zero."""

_LONE_CEILING = 0.9
"""Usual similarity assumed of a class with a single memory, where no other class has more."""

_OTHERS = 256
"""Most memories of other classes on which a class's floor is estimated: keeps calibration linear in the classes."""


class NoveltyScale:
    """The references of all classes, sorted."""

    def __init__(self, classes: tuple[ClassMemory, ...], device: torch.device) -> None:
        usual = torch.tensor([2.0 - 2.0 * memory.ceiling for memory in classes], device=device)
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
        beyond = 1.0 - torch.exp(1.0 - ratios / references[-1].clamp(min=1e-12)) / (len(references) + 1)
        return torch.where(ratios > references[-1], beyond, inside)


def calibrate(ltm: LongTermMemory, floor_quantile: float) -> LongTermMemory:
    """Set every class's ceiling (usual similarity among its own memories) and floor (similarity to others')."""
    ceilings = [_own_similarity(memory.vectors) for memory in ltm.classes]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    fallback = float(torch.tensor(known).median()) if known else _LONE_CEILING
    every = _Entries(ltm.classes)
    classes = []
    for row, (memory, own) in enumerate(zip(ltm.classes, ceilings, strict=True)):
        ceiling = fallback if own is None else own
        others = every.valid_for(row)
        floor = 0.0
        if len(others):
            floor = float(_mean_of_largest(others @ memory.vectors.T).quantile(floor_quantile))
        classes.append(replace(memory, ceiling=ceiling, floor=min(floor, ceiling - _LEAST_SPREAD)))
    return replace(ltm, classes=tuple(classes))


class _Entries:
    """All memories over all output units, and which of them are valid under which class's mask."""

    def __init__(self, classes: tuple[ClassMemory, ...]) -> None:
        self._masks = torch.stack([memory.mask for memory in classes])  # (classes, units)
        device = self._masks.device
        counts = torch.tensor([len(memory.vectors) for memory in classes], device=device)
        self._class = torch.arange(len(classes), device=device).repeat_interleave(counts)  # (entries,)
        self._vectors = torch.zeros(len(self._class), self._masks.shape[1], device=device)
        for row, memory in enumerate(classes):
            of_class = torch.nonzero(self._class == row)  # (n, 1)
            self._vectors[of_class, torch.nonzero(memory.mask).T] = memory.vectors
        # A memory is valid where its own mask has all units of the other: its own and later episodes.
        masks = self._masks.float()
        self._valid = (masks @ masks.T) >= masks.sum(1)[:, None]  # (classes, classes)

    def valid_for(self, row: int) -> Tensor:
        """Memories of other classes valid under a class's mask, normalised on it: (at most 256, units of the mask)."""
        valid = self._valid[row][self._class] & (self._class != row)
        chosen = torch.nonzero(valid).squeeze(1)
        chosen = chosen[:: max(1, -(-len(chosen) // _OTHERS))]
        return F.normalize(self._vectors[chosen][:, self._masks[row]], dim=1)


def _own_similarity(vectors: Tensor) -> float | None:
    """Median similarity of a class's memories to the rest of them; none of a single memory."""
    if len(vectors) < 2:
        return None
    cosine = (vectors @ vectors.T).fill_diagonal_(-torch.inf)  # (n, n)
    return float(_mean_of_largest(cosine, at_most=len(vectors) - 1).median())


def _mean_of_largest(cosine: Tensor, at_most: int = NEIGHBOURS) -> Tensor:
    return cosine.topk(min(NEIGHBOURS, at_most, cosine.shape[1]), dim=1).values.mean(1)
