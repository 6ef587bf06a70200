"""Labelled examples for a benchmark: torchvision's data sets and plain folders as uint8 images, vectors as floats.

Nothing is downloaded, and a run on validation data never reads the test set. Class indices follow the data set's own
order of labels, which is the order in which episodes take them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.image_folders import read_folder
from benchmarks.datasets.vectors import Split, read_digits, read_npz
from benchmarks.errors import DataError, require

DATASETS = (
    "mnist", "fashion-mnist", "emnist-letters", "cifar10", "cifar100", "letters", "banking77", "digits", "folder",
    "vectors",
)  # fmt: skip

HELD_OUT = 1 / 6
"""Share of the training set that becomes validation data, and of a folder without its own test set that becomes one:
10,000 of MNIST's 60,000."""

_FOLDER_SPLIT_SEED = 0
"""A folder's own test set is the same in every run, whatever the seed."""


@dataclass(frozen=True)
class Examples:
    """Images or vectors, and their classes."""

    x: NDArray[Any]
    """Images (n, channels, height, width) as bytes, or vectors (n, values) as floats."""
    y: NDArray[np.int64]
    """(n,) indices into the data set's classes."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: NDArray[np.int64]) -> Examples:
        """Some of the examples."""
        return Examples(self.x[index], self.y[index])


@dataclass(frozen=True)
class Dataset:
    """A data set as it was found."""

    name: str
    classes: tuple[str, ...]
    """Names of the classes, in label order."""
    train: Examples
    test: Examples | None
    """Absent where it was not asked for."""
    source: str
    """Where it was read from, for the report."""


def load(name: str, root: Path, *, test: bool = True) -> Dataset:
    """Read a data set below `root`; without `test` the test examples are not read.

    CIFAR may also lie there as folders: `root/train/<class>/*` or `root/cifar10/train/<class>/*`, and `test` beside;
    the letters always do. Embeddings lie there as `root/banking77*.npz`; of `vectors` the root is an .npz file itself.
    The digits come with scikit-learn.
    """
    require(name in DATASETS, "dataset", name, "one of " + ", ".join(DATASETS))
    if name == "vectors":
        return _of_vectors(name, read_npz(root, test=test), root.name)
    if not root.is_dir():
        raise DataError(f"no folder {root} to look for {name} in: give one with --data-root")
    if name == "folder":
        return _from_folder(name, root, test)
    if name == "digits":
        return _of_vectors(name, read_digits(test=test), "scikit-learn")
    if name == "banking77":
        path = _only_file(name, root, "banking77*.npz")
        return _of_vectors(name, read_npz(path, test=test), path.name)
    if name == "letters":
        return _from_named_folders(name, root, test, "")
    try:
        return _from_torchvision(name, root, test)
    except (RuntimeError, FileNotFoundError) as error:
        looked_for = f"no {_TORCHVISION[name].files} (torchvision's layout; nothing is downloaded)"
        if name in _CLASSES_OF_FOLDERS:
            return _from_named_folders(name, root, test, looked_for)
        raise DataError(f"{name} is not below {root}: found {looked_for}") from error


def prepare(dataset: Dataset, *, fraction: float, validate: bool, seed: int) -> tuple[Examples, Examples]:
    """The examples to learn from and those to judge by.

    `validate` judges by examples split off from the training set; only what is left of it is cut to `fraction`.
    """
    require(0.0 < fraction <= 1.0, "fraction", fraction, "in (0, 1]")
    train, judge = dataset.train, dataset.test
    if validate:
        judge, train = _divide(train, HELD_OUT, seed, least=1)
    if judge is None:
        raise DataError(f"{dataset.name} was read without its test set, so only validation can judge")
    return stratified(train, fraction, seed), judge


def stratified(images: Examples, fraction: float, seed: int) -> Examples:
    """A random share of each class, at least two of it, in the order of the original."""
    return images if fraction >= 1.0 else _divide(images, fraction, seed, least=2)[0]


def _divide(images: Examples, share: float, seed: int, least: int) -> tuple[Examples, Examples]:
    """A share of each class, but at least so many of it, and the rest."""
    random = np.random.default_rng((seed, 1))
    chosen = np.zeros(len(images), dtype=bool)
    for class_id in np.unique(images.y):
        members = random.permutation(np.flatnonzero(images.y == class_id))
        chosen[members[: max(least, round(share * len(members)))]] = True
    return images.take(np.flatnonzero(chosen)), images.take(np.flatnonzero(~chosen))


# ---- torchvision ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Torchvision:
    cls: str
    files: str
    """What it looks for, relative to the root, for the error message."""
    options: dict[str, Any]
    first: int = 0
    """Label of the first class: EMNIST letters count from 1."""


_TORCHVISION = {
    "mnist": _Torchvision("MNIST", "MNIST/raw/train-images-idx3-ubyte and its siblings", {}),
    "fashion-mnist": _Torchvision("FashionMNIST", "FashionMNIST/raw/train-images-idx3-ubyte and its siblings", {}),
    "emnist-letters": _Torchvision(
        "EMNIST", "EMNIST/raw/emnist-letters-train-images-idx3-ubyte and its siblings", {"split": "letters"}, first=1
    ),
    "cifar10": _Torchvision("CIFAR10", "cifar-10-batches-py", {}),
    "cifar100": _Torchvision("CIFAR100", "cifar-100-python", {}),
}


def _from_torchvision(name: str, root: Path, test: bool) -> Dataset:
    import torchvision.datasets

    known = _TORCHVISION[name]
    make: Callable[..., Any] = getattr(torchvision.datasets, known.cls)
    parts = {train: make(str(root), train=train, download=False, **known.options) for train in (True, *[False] * test)}
    return Dataset(
        name=name,
        classes=tuple(str(label).partition(" - ")[0] for label in parts[True].classes[known.first :]),  # "0 - zero"
        train=_images(parts[True], known.first),
        test=_images(parts[False], known.first) if test else None,
        source=f"torchvision.datasets.{known.cls}",
    )


def _images(part: Any, first: int) -> Examples:
    x = np.asarray(part.data)
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)  # (n, h, w) or (n, h, w, 3) to (n, c, h, w)
    return Examples(np.ascontiguousarray(x, dtype=np.uint8), np.asarray(part.targets, dtype=np.int64) - first)


# ---- vectors ----------------------------------------------------------------------------------------------------


def _of_vectors(name: str, found: tuple[tuple[str, ...], Split, Split | None], source: str) -> Dataset:
    classes, train, test = found
    return Dataset(name, classes, Examples(*train), None if test is None else Examples(*test), source)


def _only_file(name: str, root: Path, pattern: str) -> Path:
    files = sorted(root.glob(pattern))
    if len(files) != 1:
        raise DataError(f"{name} is one file {pattern} below {root}: there are {len(files)}")
    return files[0]


# ---- folders ----------------------------------------------------------------------------------------------------


_CLASSES_OF_FOLDERS = {"cifar10": 10, "cifar100": 100, "letters": 26}
"""Data sets that may lie in folders, and how many there must be."""


def _from_named_folders(name: str, root: Path, test: bool, looked_for: str) -> Dataset:
    """A named data set from folders, if it can be that one: other figures stand beside it."""
    places = (root, root / name)
    for place in places:
        if (place / "train").is_dir():
            dataset = _from_folder(name, place, test)
            wanted = _CLASSES_OF_FOLDERS[name]
            if len(dataset.classes) != wanted:
                raise DataError(f"{name} has {wanted} classes, but there are {len(dataset.classes)} folders of images")
            return dataset
    folders = " or ".join(str(place / "train") for place in places)
    missing = f"{looked_for}, nor folders of images" if looked_for else "no folders of images"
    raise DataError(f"{name} is not below {root}: found {missing} in {folders}")


def _from_folder(name: str, root: Path, test: bool) -> Dataset:
    if (root / "train").is_dir():
        classes = _class_order(root, root / "train")
        train = Examples(*read_folder(root / "train", classes))
        held = Examples(*read_folder(root / "test", classes)) if test else None
        if held is not None and held.x.shape[1:] != train.x.shape[1:]:
            raise DataError(
                f"training and test images below {root} differ in shape: {train.x.shape[1:]} and {held.x.shape[1:]}"
            )
        return Dataset(name, classes, train, held, "folders of images")
    classes = _class_order(root, root)
    held, train = _divide(Examples(*read_folder(root, classes)), HELD_OUT, _FOLDER_SPLIT_SEED, least=1)
    return Dataset(name, classes, train, held if test else None, "folders of images, a sixth of them the test set")


def _class_order(root: Path, folder: Path) -> tuple[str, ...]:
    """`classes.txt` settles the order where it lies beside; else names are sorted."""
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise DataError(f"no class folders in {folder}: images are looked for as {folder}/<class>/*")
    order = root / "classes.txt"
    if not order.is_file():
        return tuple(found)
    named = [line.strip() for line in order.read_text(encoding="utf-8").splitlines() if line.strip()]
    if sorted(named) != found:
        odd = sorted(set(named) ^ set(found)) or named
        raise DataError(f"{order} and the class folders of {folder} do not agree: {odd[0]!r}")
    return tuple(named)
