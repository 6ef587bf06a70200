"""Small data sets, written where a test can throw them away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchmarks.datasets import Examples, synthetic


def write_idx(path: Path, values: NDArray[np.uint8]) -> None:
    """Write the format of MNIST's files: magic number, sizes, bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = np.array([0x0800 + values.ndim, *values.shape], dtype=">i4").tobytes()
    path.write_bytes(head + values.tobytes())


def write_mnist_layout(folder: Path, train: Examples, test: Examples, prefix: str = "", first: int = 0) -> None:
    """Write two splits as torchvision expects them; labels count from `first`."""
    for name, part in (("train", train), ("test" if prefix else "t10k", test)):
        write_idx(folder / f"{prefix}{name}-images-idx3-ubyte", part.x[:, 0])
        write_idx(folder / f"{prefix}{name}-labels-idx1-ubyte", (part.y + first).astype(np.uint8))


def write_pngs(folder: Path, images: Examples, names: list[str]) -> None:
    """Write one folder of PNGs per class."""
    for number, (x, y) in enumerate(zip(images.x, images.y, strict=True)):
        place = folder / names[y]
        place.mkdir(parents=True, exist_ok=True)
        pixels = x[0] if len(x) == 1 else x.transpose(1, 2, 0)
        Image.fromarray(pixels).save(place / f"{number:04d}.png")


@pytest.fixture(scope="session")
def mnist_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mnist")
    train = synthetic.images(10, 12, (1, 28, 28), seed=0)
    test = synthetic.images(10, 4, (1, 28, 28), seed=1)
    write_mnist_layout(root / "MNIST" / "raw", train, test)
    return root


@pytest.fixture(scope="session")
def png_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of grey 8×8 images with their own test set."""
    root = tmp_path_factory.mktemp("folder")
    names = ["bat", "ant", "cow", "dog"]
    write_pngs(root / "train", synthetic.images(4, 12, (1, 8, 8), seed=0), names)
    write_pngs(root / "test", synthetic.images(4, 4, (1, 8, 8), seed=1), names)
    return root


def clouds(classes: int, per_class: int, seed: int) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    """Vectors about a centre of each class, so wide that most answers are right and some are wrong."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(classes), per_class))
    centres = np.random.default_rng(7).normal(size=(classes, 12))
    return (centres[y] + 0.9 * random.normal(size=(len(y), 12))).astype(np.float16), y


@pytest.fixture(scope="session")
def learner_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the learner's experiments read, but CIFAR: 22 classes of vectors, and ten of images, twice."""
    root = tmp_path_factory.mktemp("learner")
    (train_x, train_y), (test_x, test_y) = clouds(22, 30, seed=0), clouds(22, 9, seed=1)
    np.savez(root / "banking77_small.npz", train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    for name in ("MNIST", "FashionMNIST"):
        train, test = (synthetic.images(10, number, (1, 28, 28), seed=number) for number in (26, 4))
        write_mnist_layout(root / name / "raw", train, test)
    return root


WriteMnist = Callable[..., None]
WriteFolders = Callable[[Path, Examples, list[str]], None]


@pytest.fixture
def write_mnist() -> WriteMnist:
    return write_mnist_layout


@pytest.fixture
def write_folders() -> WriteFolders:
    return write_pngs
