"""Compares a whole batch with all memories in two matrix products: one with the memories, one with the masks.

‖φ(c·m) − φ(z·m)‖² = 2 − 2·cos over the mask's units. What follows the products must stay small beside them, whatever
the memories look like: nothing here depends on how near they lie to an example or to one another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sharp_engine.device import upload
from sharp_engine.memory.long_term import ClassMemory
from sharp_engine.prediction.novelty import NEIGHBOURS

_WORTH_INSERTING = 4096
"""From so many lists on, inserting into all of them at once is faster than `torch.topk`."""


@dataclass(frozen=True)
class Compared:
    """A batch compared with every memory of a `Matcher`. Similarity is product · scale, for any but silent examples."""

    products: Tensor
    """(n, depth, classes) of representations and memories, −∞ where the grid is padded."""
    scale: Tensor
    """(n, classes): one over an example's length on a class's mask."""
    silent: Tensor
    """(n, classes) bool: examples that are zero on a class's mask."""


class Matcher:
    """Compares representations with every memory. The memories stand in a grid: depth × classes, padded.

    Similarity is 1 − distance / 2: the cosine, unless one of the two vectors is zero. What an example is divided by is
    positive and the same for all memories of a class, so it is left out until only the nearest ones remain.
    """

    def __init__(self, memories: tuple[ClassMemory, ...], units: Tensor) -> None:
        """`units`: indices, among all output units, of those that representations will have."""
        device = units.device
        sizes = [len(memory.vectors) for memory in memories]
        counts = torch.tensor(sizes, device=device)  # (classes,)
        self.classes, self.depth, self.entries = len(memories), max(sizes), sum(sizes)
        grid = torch.zeros(self.depth, self.classes, len(units), device=device)
        masks: dict[bytes, int] = {}
        group = []
        own = torch.stack([memory.mask[units] for memory in memories]).cpu()  # (classes, units)
        for row, (memory, mask) in enumerate(zip(memories, own, strict=True)):
            places = upload(torch.nonzero(mask).squeeze(1), device)  # of the mask's units
            grid[: len(memory.vectors), row][:, places] = memory.vectors
            group.append(masks.setdefault(mask.numpy().tobytes(), len(masks)))
        self._group = torch.tensor(group, device=device)  # (classes,)
        columns = np.stack([np.frombuffer(key, dtype=bool) for key in masks], axis=1)
        self._masks = torch.from_numpy(columns).float().to(device)  # (units, groups)
        self._memories = grid.flatten(0, 1).T.contiguous()  # (units, depth · classes)
        absent = torch.arange(self.depth, device=device)[:, None] >= counts[None, :]  # (depth, classes)
        zero = ~absent & ~grid.any(2)
        self._absent = absent if bool(absent.any()) else None
        self._zero = zero if bool(zero.any()) else None
        # A zero vector is 1 from all others and 0 from another zero: similarities of silent examples.
        self._silent = torch.where(zero, 1.0, 0.5).masked_fill(absent, -torch.inf)  # (depth, classes)
        self._most_silent = _largest(self._silent[None], min(NEIGHBOURS, self.depth))  # (few, 1, classes)
        self._few = counts.clamp(max=NEIGHBOURS)  # (classes,) memories that a class's similarity is averaged over

    def compare(self, z: Tensor) -> Compared:
        """Representations z, (n, units), with all memories."""
        squares = ((z * z) @ self._masks)[:, self._group]  # (n, classes) squared lengths over each class's mask
        products = (z @ self._memories).view(len(z), self.depth, self.classes)
        if self._zero is not None:
            products = torch.where(self._zero, 0.5 * squares.sqrt()[:, None, :], products)
        if self._absent is not None:
            products.masked_fill_(self._absent, -torch.inf)
        return Compared(products, squares.clamp(min=1e-30).rsqrt(), squares <= 0)

    def similarities(self, z: Tensor) -> Tensor:
        """To all memories, −∞ where the grid is padded: (n, classes, depth)."""
        compared = self.compare(z)
        scaled = compared.products * compared.scale[:, None, :]
        return torch.where(compared.silent[:, None, :], self._silent, scaled).transpose(1, 2)

    def best_of_each(self, compared: Compared, count: int) -> Tensor:
        """Similarity of the few memories of each class that are nearest, nearest first: (at most count, n, classes).

        −∞ where a class has fewer.
        """
        count = min(count, self.depth)
        largest = _largest(compared.products, count) * compared.scale
        return torch.where(compared.silent, self._most_silent[:count], largest)

    def class_similarity(self, best: Tensor) -> Tensor:
        """Of every class: the mean over its few nearest memories, (n, classes)."""
        if self._absent is not None:
            best = best.masked_fill(best.isinf(), 0.0)
        return best.sum(0) / self._few

    def nearest(self, compared: Compared, best: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarity and class of the k nearest memories, nearest first: (n, k) each.

        They all belong to the k classes with the nearest memories, so only those are searched. best: (n, classes).
        """
        rows = best.topk(min(k, self.classes), dim=1).indices  # (n, c)
        places = rows[:, None, :].expand(-1, self.depth, -1)  # (n, depth, c)
        scaled = compared.products.gather(2, places) * compared.scale.gather(1, rows)[:, None, :]
        silent = self._silent.T[rows].transpose(1, 2)  # (n, depth, c)
        candidates = torch.where(compared.silent.gather(1, rows)[:, None, :], silent, scaled)
        values, index = candidates.flatten(1).topk(k, dim=1)
        return values, rows.gather(1, index % rows.shape[1])


def _largest(grid: Tensor, count: int) -> Tensor:
    """The largest values over the depth, in order: (n, depth, classes) → (count, n, classes).

    Each layer of the grid is inserted into sorted lists, one for every example and class, all of them at once.
    """
    n, depth, classes = grid.shape
    if n * classes < _WORTH_INSERTING:
        return grid.topk(count, dim=1).values.movedim(1, 0)
    largest = grid.new_full((count, n, classes), -torch.inf)
    spare = grid.new_empty(2, n, classes)
    for new in grid.unbind(1):
        for place in range(count):
            rest = torch.minimum(largest[place], new, out=spare[place % 2])
            torch.maximum(largest[place], new, out=largest[place])
            new = rest
    return largest
