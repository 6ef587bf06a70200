"""DATA: a folder of images, an .npz file, or the name of a data set that scikit-learn ships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import typer

NAMES = ("digits", "iris", "wine", "breast_cancer")
"""Data sets that come with scikit-learn."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")

HELP = f"A folder of images (one folder per class), an .npz file (x, y), or one of {', '.join(NAMES)}."
"""What to say about DATA in help texts."""


class Part(StrEnum):
    """Which part of the data to use."""

    ALL = "all"
    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True)
class LabelledData:
    """Examples and their labels."""

    x: Any
    """An array, or a list of paths."""
    y: Sequence[str | int]
    """One label each."""
    name: str
    """Its name."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Sequence[int]) -> LabelledData:
        """Select examples by index."""
        x = [self.x[i] for i in indices] if isinstance(self.x, list) else self.x[np.asarray(indices, int)]
        return LabelledData(x, [self.y[i] for i in indices], self.name)

    def part(self, part: Part) -> LabelledData:
        """Select all of it, every fifth example of each class (test), or the others (train)."""
        if part is Part.ALL:
            return self
        seen: dict[str | int, int] = {}
        chosen = []
        for index, label in enumerate(self.y):
            seen[label] = seen.get(label, 0) + 1
            if (seen[label] % 5 == 0) == (part is Part.TEST):
                chosen.append(index)
        return self.take(chosen)

    @property
    def classes(self) -> list[str | int]:
        """Its classes, sorted."""
        return sorted(set(self.y), key=lambda label: (isinstance(label, str), label))

    def episodes(self, classes_per_episode: int, seed: int) -> list[LabelledData]:
        """Divide it by classes, some for each episode, and mix the examples within each; 0: all in one."""
        classes = self.classes
        step = classes_per_episode or len(classes)
        mixer = np.random.default_rng(seed)
        episodes = []
        for start in range(0, len(classes), step):
            chosen = set(classes[start : start + step])
            indices = [index for index, label in enumerate(self.y) if label in chosen]
            episodes.append(self.take(mixer.permutation(indices).tolist()))
        return episodes

    def batches(self, size: int) -> Iterator[LabelledData]:
        """Split it into batches."""
        for start in range(0, len(self), size):
            yield self.take(range(start, min(start + size, len(self))))


def load(data: str) -> LabelledData:
    """Read DATA, whatever kind it is."""
    path = Path(data)
    if path.is_dir():
        return _load_folder(path)
    if path.suffix == ".npz":
        return _load_npz(path)
    if data in NAMES:
        return _load_by_name(data)
    raise typer.BadParameter(f"{data!r} is no folder, no .npz file and none of {', '.join(NAMES)}", param_hint="DATA")


def _load_folder(folder: Path) -> LabelledData:
    files, labels = [], []
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        for file in sorted(group.rglob("*")):
            if file.suffix.lower() in IMAGE_SUFFIXES:
                files.append(file)
                labels.append(group.name)
    if not files:
        suffixes = ", ".join(IMAGE_SUFFIXES)
        raise typer.BadParameter(f"{folder} has no folders with {suffixes} files in them", param_hint="DATA")
    return LabelledData(files, labels, folder.resolve().name)


def _load_npz(path: Path) -> LabelledData:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [key for key in ("x", "y") if key not in arrays]
            if missing:
                found = ", ".join(arrays.files) or "nothing"
                raise typer.BadParameter(f"{path} has {found}, but no {' and no '.join(missing)}", param_hint="DATA")
            x, y = arrays["x"], arrays["y"]
    except OSError:
        raise
    except typer.BadParameter:
        raise
    except Exception as error:  # numpy raises whatever zip files, headers and pickles do
        raise typer.BadParameter(f"{path} can't be read: {error}", param_hint="DATA") from None
    if y.ndim != 1 or len(x) != len(y):
        raise typer.BadParameter(
            f"{path} needs one label per example: x has the shape {x.shape}, y {y.shape}", param_hint="DATA"
        )
    return LabelledData(x, y.tolist(), path.stem)


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
