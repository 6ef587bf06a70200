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

from sharp_engine.ltm import ClassMemory, LongTermMemory

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
        self._usual = usual.clamp(min=_LEAST_SPREAD)  # (classes,)
        self._references = torch.cat([memory.reference for memory in classes]).sort().values  # (r,)

    def ratios(self, class_distances: Tensor) -> Tensor:
        """Least ratio of each example over all classes, from mean distances (n, classes): (n,)."""
        return (class_distances / self._usual).min(1).values

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
    classes = []
    for memory, own in zip(ltm.classes, ceilings, strict=True):
        ceiling = fallback if own is None else own
        others = _others(memory, ltm.classes)
        floor = 0.0
        if len(others):
            floor = float(_mean_of_largest(others @ memory.vectors.T).quantile(floor_quantile))
        classes.append(replace(memory, ceiling=ceiling, floor=min(floor, ceiling - _LEAST_SPREAD)))
    return replace(ltm, classes=tuple(classes))


def _own_similarity(vectors: Tensor) -> float | None:
    """Median similarity of a class's memories to the rest of them; none of a single memory."""
    if len(vectors) < 2:
        return None
    cosine = (vectors @ vectors.T).fill_diagonal_(-torch.inf)  # (n, n)
    return float(_mean_of_largest(cosine, at_most=len(vectors) - 1).median())


def _mean_of_largest(cosine: Tensor, at_most: int = NEIGHBOURS) -> Tensor:
    return cosine.topk(min(NEIGHBOURS, at_most, cosine.shape[1]), dim=1).values.mean(1)


def _others(memory: ClassMemory, classes: tuple[ClassMemory, ...]) -> Tensor:
    """Memories of other classes that are valid under this class's mask, normalised on it: (n, units of the mask)."""
    valid = []
    for other in classes:
        if other.class_id != memory.class_id and bool((other.mask | ~memory.mask).all()):
            valid.append(other.vectors[:, memory.mask[other.mask]])
    if not valid:
        return memory.vectors[:0]
    others = torch.cat(valid)
    stride = -(-len(others) // _OTHERS)
    return F.normalize(others[::stride], dim=1)
