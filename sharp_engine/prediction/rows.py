"""Rows mapped block by block: each row's result depends, to the bit, on nothing but itself and its place in its block.

A matrix product rounds differently for every number of rows. In blocks of one fixed shape, filled up with zeros, it
does not: a learner that was loaded computes the same bits as one that was taught, and blocks that have not changed
since the last time need not be computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 16
"""Rows per product."""


@dataclass(frozen=True)
class MappedRows:
    """Rows and what a map made of them."""

    rows: Tensor
    """(blocks, rows of a block, values), filled up with zeros"""
    mapped: Tensor
    """(blocks, rows of a block, results)"""
    count: int
    """How many of the rows are none of the filling."""

    @property
    def results(self) -> Tensor:
        """Without the filling: (count, results)."""
        return self.mapped.flatten(0, 1)[: self.count]

    def same(self, other: MappedRows | None) -> bool:
        """Whether they are of the same rows, to the bit."""
        return other is not None and self.count == other.count and torch.equal(self.rows, other.rows)


def map_rows(function: Callable[[Tensor], Tensor], rows: Tensor, before: MappedRows | None = None) -> MappedRows:
    """What a function makes of rows (n, values), at least one.

    `before`: what the same function made of earlier rows, to be taken over where nothing has changed.
    """
    blocks = -(-len(rows) // _BLOCK)
    padded = torch.zeros(blocks * _BLOCK, *rows.shape[1:], device=rows.device)
    padded[: len(rows)] = rows
    padded = padded.view(blocks, _BLOCK, -1)
    known = [False] * blocks
    if before is not None:
        common = min(blocks, len(before.rows))
        known[:common] = (padded[:common] == before.rows[:common]).flatten(1).all(1).tolist()
    mapped = [
        before.mapped[i] if before is not None and known[i] else function(block) for i, block in enumerate(padded)
    ]
    return MappedRows(padded, torch.stack(mapped), len(rows))
