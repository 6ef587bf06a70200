"""Read DATA, whatever kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer

from sharp_cli.data.folders import load_folder
from sharp_cli.data.labelled import LabelledData
from sharp_cli.data.tables import TABLE_SUFFIXES, read_table

NAMES = ("digits", "iris", "wine", "breast_cancer")
"""Data sets that come with scikit-learn."""

HELP = (
    "A folder of images (one folder per class), an .npz (x, y), .csv or .parquet file of vectors, or one of "
    f"{', '.join(NAMES)}."
)
"""What to say about DATA in help texts."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read it."""

    class_level: int | None = None
    """Which level of folders is the class, 1 for the outermost, -1 for the innermost. None: ask where it matters."""
    label_column: str | None = None
    """Name of the column of labels. None: by its usual names, or the last."""
    skip_bad: bool = False
    """Whether to go on without what can't be used."""


def load(data: str, options: ReadOptions | None = None) -> LabelledData:
    """Read DATA, or refuse with what is wrong with it."""
    options = options or ReadOptions()
    path = Path(data)
    if path.is_dir():
        return load_folder(path, options.class_level, options.skip_bad)
    if path.suffix.lower() in TABLE_SUFFIXES:
        table = read_table(path, options.label_column, labelled=True)
        table.findings.refuse_unless(options.skip_bad)
        assert table.y is not None
        return LabelledData(table.x, table.y, path.stem, findings=table.findings)
    if data in NAMES:
        return _load_by_name(data)
    kinds = f"no folder, no {', '.join(TABLE_SUFFIXES)} file"
    raise typer.BadParameter(f"{data!r} is {kinds} and none of {', '.join(NAMES)}", param_hint="DATA")


def _load_by_name(name: str) -> LabelledData:
    try:
        from sklearn import datasets
    except ImportError:
        raise typer.BadParameter(
            f"{name} comes with scikit-learn, which is not installed: pip install scikit-learn", param_hint="DATA"
        ) from None
    loaded = getattr(datasets, f"load_{name}")()
    x = loaded.data
    low, high = x.min(axis=0), x.max(axis=0)
    if name == "digits":
        low, high = 0.0, 16.0  # the scale of its pixels
    # Features of very different scales would hide each other; the presets expect 0 to 1.
    x = ((x - low) / np.maximum(high - low, 1e-9)).astype(np.float32)
    y = loaded.target.tolist() if name == "digits" else [str(loaded.target_names[i]) for i in loaded.target]
    return LabelledData(x, y, name)
