"""Data sets are read as they lie on disk, split fairly, and missed with a message that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import datasets
from benchmarks.datasets import Dataset, Examples, synthetic
from benchmarks.errors import DataError, OptionError

Write = Callable[..., None]


def rows(images: Examples) -> set[bytes]:
    return {x.tobytes() for x in images.x}


def test_mnist_is_read_from_torchvisions_own_files(mnist_root: Path) -> None:
    found = datasets.load("mnist", mnist_root)
    written = synthetic.images(10, 12, (1, 28, 28), seed=0)
    assert found.classes == tuple("0123456789")
    assert found.test is not None and len(found.test) == 40
    np.testing.assert_array_equal(found.train.x, written.x)
    np.testing.assert_array_equal(found.train.y, written.y)


def test_emnist_letters_count_from_zero(tmp_path: Path, write_mnist: Write) -> None:
    train, test = (synthetic.images(26, 2, (1, 28, 28), seed=seed) for seed in (0, 1))
    write_mnist(tmp_path / "EMNIST" / "raw", train, test, prefix="emnist-letters-", first=1)
    found = datasets.load("emnist-letters", tmp_path)
    assert found.classes == tuple("abcdefghijklmnopqrstuvwxyz")
    assert sorted(set(found.train.y.tolist())) == list(range(26))


def test_without_test_the_test_images_are_not_read(png_root: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(png_root / "train")
    found = datasets.load("folder", tmp_path, test=False)
    assert found.test is None
    train, judge = datasets.prepare(found, fraction=1.0, validate=True, seed=0)
    assert len(train) + len(judge) == len(found.train) and not rows(train) & rows(judge)


def test_missing_files_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"MNIST/raw/train-images-idx3-ubyte"):
        datasets.load("mnist", tmp_path)
    with pytest.raises(DataError, match=r"cifar-10-batches-py.*cifar10/train"):
        datasets.load("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"no folder .*nowhere"):
        datasets.load("mnist", tmp_path / "nowhere")
    with pytest.raises(OptionError, match="'imagenet'"):
        datasets.load("imagenet", tmp_path)


def test_a_folder_takes_its_class_names_from_its_folders_sorted(png_root: Path) -> None:
    found = datasets.load("folder", png_root)
    assert found.classes == ("ant", "bat", "cow", "dog")
    assert found.train.x.shape == (48, 1, 8, 8) and found.train.x.dtype == np.uint8
    assert found.test is not None
    assert np.bincount(found.train.y).tolist() == [12] * 4 and np.bincount(found.test.y).tolist() == [4] * 4


def test_classes_txt_beside_the_folders_settles_their_order(png_root: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).symlink_to(png_root / part)
    (tmp_path / "classes.txt").write_text("dog\nant\ncow\nbat\n")
    assert datasets.load("folder", tmp_path).classes == ("dog", "ant", "cow", "bat")
    (tmp_path / "classes.txt").write_text("dog\nant\ncow\nbee\n")
    with pytest.raises(DataError, match=r"'bat'"):
        datasets.load("folder", tmp_path)


@pytest.mark.parametrize("place", [".", "cifar10"])
def test_cifar_falls_back_to_folders_of_images(tmp_path: Path, write_folders: Write, place: str) -> None:
    names = [f"class {i}" for i in range(10)]
    for part, seed in (("train", 0), ("test", 1)):
        write_folders(tmp_path / place / part, synthetic.images(10, 2, (3, 32, 32), seed=seed), names)
    found = datasets.load("cifar10", tmp_path)
    assert found.train.x.shape == (20, 3, 32, 32) and found.source == "folders of images"
    written = synthetic.images(10, 2, (3, 32, 32), seed=0)
    assert rows(found.train) == rows(written)


def test_folders_of_other_classes_are_not_taken_for_cifar(tmp_path: Path, write_folders: Write) -> None:
    write_folders(tmp_path / "train", synthetic.images(3, 2, (3, 32, 32)), ["a", "b", "c"])
    with pytest.raises(DataError, match="cifar10 has 10 classes, but there are 3"):
        datasets.load("cifar10", tmp_path, test=False)


def test_a_folder_without_a_test_set_gives_a_sixth_away_always_the_same(tmp_path: Path, write_folders: Write) -> None:
    write_folders(tmp_path, synthetic.images(2, 12, (1, 8, 8)), ["a", "b"])
    first, again = (datasets.load("folder", tmp_path) for _ in range(2))
    assert first.test is not None and again.test is not None
    assert np.bincount(first.test.y).tolist() == [2, 2] and len(first.train) == 20
    assert rows(first.test) == rows(again.test) and not rows(first.test) & rows(first.train)


def test_an_image_of_another_size_is_named(tmp_path: Path, write_folders: Write) -> None:
    write_folders(tmp_path, synthetic.images(2, 3, (1, 8, 8)), ["a", "b"])
    Image.fromarray(np.zeros((9, 8), dtype=np.uint8)).save(tmp_path / "b" / "odd.png")
    with pytest.raises(DataError, match=r"odd\.png has 8×9.*has 8×8"):
        datasets.load("folder", tmp_path)


def test_one_image_in_colour_makes_all_three_channelled(tmp_path: Path, write_folders: Write) -> None:
    write_folders(tmp_path, synthetic.images(2, 6, (1, 8, 8)), ["a", "b"])
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(tmp_path / "b" / "colour.png")
    assert datasets.load("folder", tmp_path).train.x.shape[1:] == (3, 8, 8)


def test_files_that_are_no_images_are_passed_over_or_refused(tmp_path: Path, write_folders: Write) -> None:
    write_folders(tmp_path, synthetic.images(2, 6, (1, 8, 8)), ["a", "b"])
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    assert len(datasets.load("folder", tmp_path).train) == 10
    (tmp_path / "a" / "broken.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"broken\.png"):
        datasets.load("folder", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in .*empty|broken"):
        datasets.load("folder", tmp_path)


@pytest.mark.parametrize("fraction", [0.02, 0.5, 1.0])
def test_a_fraction_takes_the_same_share_of_every_class_at_least_two(fraction: float) -> None:
    images = synthetic.images(4, 30, (1, 4, 4))
    part = datasets.stratified(images, fraction, seed=3)
    assert np.bincount(part.y).tolist() == [max(2, round(30 * fraction))] * 4
    assert rows(part) == rows(datasets.stratified(images, fraction, seed=3)) <= rows(images)


def test_seeds_take_different_shares() -> None:
    images = synthetic.images(2, 30, (1, 4, 4))
    assert rows(datasets.stratified(images, 0.5, seed=0)) != rows(datasets.stratified(images, 0.5, seed=1))


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5])
def test_a_fraction_that_cannot_be_is_named(fraction: float) -> None:
    images = synthetic.images(2, 4, (1, 4, 4))
    with pytest.raises(OptionError, match=str(fraction)):
        datasets.prepare(Dataset("folder", ("a", "b"), images, images, ""), fraction=fraction, validate=False, seed=0)


def test_embeddings_are_read_from_an_npz_file_with_their_own_test_set(tmp_path: Path) -> None:
    train_x = np.arange(12, dtype=np.float16).reshape(6, 2)
    arrays = {"train_x": train_x, "train_y": np.array(["b", "a", "b", "a", "c", "c"])}
    test = {"test_x": train_x[:1] + 1, "test_y": np.array(["c"])}
    np.savez(tmp_path / "banking77_small.npz", **arrays, **test)  # type: ignore[arg-type]
    found = datasets.load("banking77", tmp_path)
    assert found.classes == ("a", "b", "c") and found.train.y.tolist() == [1, 0, 1, 0, 2, 2]
    assert found.train.x.dtype == np.float32 and found.train.x.tolist() == train_x.tolist()
    assert found.test is not None and found.test.y.tolist() == [2] and found.source == "banking77_small.npz"
    assert datasets.load("banking77", tmp_path, test=False).test is None


def test_vectors_that_cannot_be_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"banking77\*\.npz .*there are 0"):
        datasets.load("banking77", tmp_path)
    path, x = tmp_path / "banking77.npz", np.zeros((2, 3))
    for arrays, named in (
        ({"train_x": x}, "no train_y"),
        ({"train_x": x, "train_y": np.zeros(3), "test_x": x, "test_y": np.zeros(2)}, "one label per row"),
        ({"train_x": x, "train_y": np.zeros(2), "test_x": x, "test_y": np.ones(2)}, "never in train_y"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=named):
            datasets.load("banking77", tmp_path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        datasets.load("banking77", tmp_path)


def test_the_digits_are_divided_as_in_the_demo(tmp_path: Path) -> None:
    found = datasets.load("digits", tmp_path)
    assert found.test is not None and found.train.x.shape[1:] == (64,) and found.train.x.max() == 1.0
    assert len(found.train) + len(found.test) == 1797 and np.bincount(found.test.y).tolist() == [
        35, 36, 35, 36, 36, 36, 36, 35, 34, 36,
    ]  # fmt: skip


def test_letters_are_folders_of_images(tmp_path: Path, write_folders: Write) -> None:
    names = [chr(ord("a") + i) for i in range(26)]
    for part, seed in (("train", 0), ("test", 1)):
        write_folders(tmp_path / "letters" / part, synthetic.images(26, 2, (1, 8, 8), seed=seed), names)
    assert datasets.load("letters", tmp_path).classes == tuple(names)
    with pytest.raises(DataError, match="no folders of images in .*letters/train"):
        datasets.load("letters", tmp_path / "letters" / "test")


def test_vectors_are_any_npz_file_with_training_and_test_rows(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    labels = np.array(["b", "a", "b", "a", "b", "a"])
    np.savez(tmp_path / "mine.npz", train_x=rows, train_y=labels, test_x=rows[:2], test_y=labels[:2])
    found = datasets.load("vectors", tmp_path / "mine.npz")
    assert found.classes == ("a", "b") and found.train.y.tolist() == [1, 0, 1, 0, 1, 0] and found.source == "mine.npz"
    with pytest.raises(DataError, match="cannot be read"):
        datasets.load("vectors", tmp_path / "other.npz")
