"""Raw examples of the journal as arrays and labels: what training and teaching are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sharp_engine import Label
from sharp_server.storage.records import BatchSlice


def labels_of(slices: Sequence[BatchSlice], labels: dict[int, Label]) -> list[Label]:
    """The label of each example."""
    return [labels[ordinal] for piece in slices for ordinal in np.frombuffer(piece.y, np.int32).tolist()]


def renumbered(y: bytes, numbers: Mapping[int, int]) -> bytes:
    """Ordinals with some of them replaced.

    >>> np.frombuffer(renumbered(np.array([1, 4, 1], np.int32).tobytes(), {4: 2}), np.int32).tolist()
    [1, 2, 1]
    """
    if not numbers:
        return y
    return np.array([numbers.get(n, n) for n in np.frombuffer(y, np.int32).tolist()], np.int32).tobytes()


def joined(slices: Sequence[BatchSlice], shape: tuple[int, ...]) -> NDArray[np.uint8 | np.float32]:
    """The values of slices as one array: bytes stay bytes where all slices are, else numbers of 0 to 1."""
    arrays: list[NDArray[np.uint8 | np.float32]] = [
        np.frombuffer(piece.x, np.uint8 if piece.dtype == "u1" else "<f4").reshape(piece.count, *shape)
        for piece in slices
    ]
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.astype(np.float32) / np.float32(255) if array.dtype == np.uint8 else array for array in arrays]
    return np.concatenate(arrays) if arrays else np.zeros((0, *shape), np.uint8)
