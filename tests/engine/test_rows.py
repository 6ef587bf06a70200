"""Rows mapped block by block: the same bits whoever else is there, and nothing computed twice."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharp_engine.prediction.rows import map_rows

MATRIX = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(70, 40, generator=torch.Generator().manual_seed(1))


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.calls += 1
        return rows @ MATRIX


def test_a_row_depends_on_nothing_else_in_the_batch() -> None:
    together = map_rows(Counting(), ROWS).results
    torch.testing.assert_close(together, ROWS @ MATRIX)
    for row in (0, 17, 69):
        others = torch.randn(row + 1, 40, generator=torch.Generator().manual_seed(row))
        others[row] = ROWS[row]
        assert torch.equal(map_rows(Counting(), others).results[row], together[row])


@given(st.integers(1, 70), st.integers(1, 70), st.sets(st.integers(0, 69), max_size=5))
def test_blocks_that_did_not_change_are_taken_over_to_the_bit(first: int, second: int, changed: set[int]) -> None:
    before = map_rows(Counting(), ROWS[:first])
    later = ROWS[:second].clone()
    for row in changed:
        later[min(row, second - 1)] += 1.0
    counting = Counting()
    assert torch.equal(map_rows(counting, later, before).results, map_rows(Counting(), later).results)
    same = sum(torch.equal(later[i : i + 16], ROWS[:first][i : i + 16]) for i in range(0, min(first, second), 16))
    assert counting.calls == -(-second // 16) - same
