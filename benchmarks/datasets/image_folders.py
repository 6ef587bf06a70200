"""Reads folders of image files, one folder per class, into one array.

All images must have one size: nothing is resized or cropped behind the user's back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from benchmarks.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".pgm", ".ppm", ".tif", ".tiff", ".gif")
"""Files that are read as images; others are passed over."""

_GREY, _COLOUR = ("1", "L", "LA"), ("P", "RGB", "RGBA", "CMYK", "YCbCr")


def read_folder(folder: Path, classes: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 1 or 3, h, w) of `folder/<class>/*` and their indices into `classes`.

    One image in colour makes them all three-channelled.
    """
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    first: Path | None = None
    for label, name in enumerate(classes):
        files = _image_files(folder / name)
        for file in files:
            image = _read(file)
            if images and image.shape[:2] != images[0].shape[:2]:
                raise DataError(
                    f"images must be of one size: {file} has {_size(image)}, but {first} has {_size(images[0])}"
                )
            first = first or file
            images.append(image)
            labels.append(label)
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2) for image in images]
    x = np.stack(images)  # (n, h, w[, 3])
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x), np.asarray(labels, dtype=np.int64)


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: images are looked for as {folder}/*")
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    if not files:
        raise DataError(f"no images in {folder}: files are looked for that end in {', '.join(SUFFIXES)}")
    return files


def _read(file: Path) -> NDArray[np.uint8]:
    """One image: (h, w) if grey, else (h, w, 3)."""
    try:
        with Image.open(file) as image:
            if image.mode not in (*_GREY, *_COLOUR):
                raise DataError(f"{file} has pixels of mode {image.mode}: only 8-bit grey and colour are read")
            return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"), dtype=np.uint8)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{file} cannot be read as an image: {error}") from error


def _size(image: NDArray[np.uint8]) -> str:
    return f"{image.shape[1]}×{image.shape[0]}"
