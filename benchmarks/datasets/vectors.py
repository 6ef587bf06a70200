"""Reads examples that are rows of numbers: an .npz file with its own test set, and the digits of scikit-learn.

Values keep the scale they came with: making them comparable is the learner's work. The test arrays of a file are not
read unless they are asked for.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import DataError
from sharp_cli.data import Part
from sharp_cli.data import load as load_named

Split = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Rows (n, values) and their indices into the classes (n,)."""


def read_npz(path: Path, *, test: bool) -> tuple[tuple[str, ...], Split, Split | None]:
    """Classes, training and test examples of a file with the arrays train_x, train_y, test_x and test_y.

    Labels may be numbers or words; classes are all that occur in training, sorted.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts = ["train", *["test"] * test]
            missing = [f"{part}_{name}" for part in parts for name in "xy" if f"{part}_{name}" not in arrays]
            if missing:
                raise DataError(f"{path} has no {missing[0]}: it holds {', '.join(arrays.files) or 'nothing'}")
            found = [(arrays[f"{part}_x"], arrays[f"{part}_y"]) for part in parts]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    labels = np.unique(found[0][1])
    splits = [_split(path, part, x, y, labels) for part, (x, y) in zip(parts, found, strict=True)]
    return tuple(str(label) for label in labels), splits[0], splits[1] if test else None


def read_digits(*, test: bool) -> tuple[tuple[str, ...], Split, Split | None]:
    """scikit-learn's digits as 64 values in [0, 1], divided as in the demo: every fifth of each class is a test."""
    everything = load_named("digits")
    splits: list[Split] = []
    for part in (Part.TRAIN, *[Part.TEST] * test):
        chosen = everything.part(part)
        splits.append((np.asarray(chosen.x, dtype=np.float32), np.asarray(chosen.y, dtype=np.int64)))
    return tuple(str(label) for label in everything.classes), splits[0], splits[1] if test else None


def _split(path: Path, part: str, x: NDArray[Any], y: NDArray[Any], labels: NDArray[Any]) -> Split:
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
        raise DataError(f"{path} needs one label per row: {part}_x has the shape {x.shape}, {part}_y {y.shape}")
    unknown = np.setdiff1d(y, labels)
    if len(unknown):
        raise DataError(f"{path}: class {unknown[0]!s} is in {part}_y but never in train_y")
    return x.astype(np.float32), np.searchsorted(labels, y).astype(np.int64)
