"""Made-up examples for when no data set is at hand: each class a pattern, each example its own variation of it.

They are easy to tell apart and good for timing and tests. No accuracy measured on them says anything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.loading import Examples

_COARSE = 7
"""Side of the grid from which a pattern is spread out."""


def images(classes: int, per_class: int, shape: tuple[int, int, int], seed: int = 0, first: int = 0) -> Examples:
    """Images of classes `first` … `first + classes - 1`, shuffled: (classes · per_class, channels, height, width)."""
    channels, height, width = shape
    y = np.repeat(np.arange(first, first + classes, dtype=np.int64), per_class)
    random = np.random.default_rng((seed, first))
    patterns = np.stack([_pattern(class_id, shape) for class_id in range(first, first + classes)])
    strength = random.uniform(0.6, 1.0, (len(y), 1, 1, 1))
    x = patterns[y - first] * strength * 255.0  # (n, channels, height, width)
    x += random.normal(0.0, 20.0, (len(y), 1, height, width))
    x[x < 60.0] = 0.0  # dark ground, as in digits
    order = random.permutation(len(y))
    return Examples(np.clip(x, 0.0, 255.0).astype(np.uint8)[order], y[order])


def vectors(classes: int, per_class: int, values: int, seed: int = 0) -> Examples:
    """Vectors of unit length about a direction of each class, shuffled: (classes · per_class, values)."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(classes, dtype=np.int64), per_class))
    directions = np.random.default_rng(4).normal(size=(classes, values))
    x = directions[y] + random.normal(size=(len(y), values))
    return Examples((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y)


def _pattern(class_id: int, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """A smooth picture in [0, 1] that is the class's own, whatever the seed."""
    channels, height, width = shape
    random = np.random.default_rng((class_id, 4))
    coarse = random.random((channels, _COARSE, _COARSE)) ** 2
    rows, columns = (np.linspace(0, _COARSE - 1, side) for side in (height, width))
    spread = np.stack([_interpolate(plane, rows, columns) for plane in coarse])
    return spread


def _interpolate(
    plane: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A coarse plane seen at finer places, linearly in both directions."""
    grid = np.arange(len(plane), dtype=np.float64)
    tall = np.stack([np.interp(rows, grid, column) for column in plane.T], axis=1)  # (rows, coarse)
    return np.stack([np.interp(columns, grid, row) for row in tall])  # (rows, columns)
