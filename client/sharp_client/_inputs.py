"""From the examples that users have to messages of the right size."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharp.v1 import tensor_pb2

from ._errors import MessageTooLargeError
from ._failures import local_error
from ._reasons import (
    DtypeUnsupportedError,
    FieldInvalidError,
    ImageMalformedError,
    NonFiniteValuesError,
    ShapeMismatchError,
)

Array = np.ndarray[Any, np.dtype[Any]]

OVERHEAD_BYTES = 4096
"""Room left in a message for everything but the examples and their labels."""

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM")
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_DTYPES = {np.dtype(np.uint8): tensor_pb2.DTYPE_UINT8, np.dtype(np.float32): tensor_pb2.DTYPE_FLOAT32}


@dataclass(frozen=True)
class Examples:
    """Examples that were checked: numbers, or image files."""

    array: Array | None = None
    """uint8 or float32 in the shape of a Tensor."""
    images: Sequence[bytes | Path] = ()
    """Whole files (PNG, JPEG, WebP, BMP), or their paths, which are read when they are sent."""
    resize: bool = False
    """Whether the server may resize images of another size."""

    def __len__(self) -> int:
        return len(self.images) if self.array is None else len(self.array)

    def sizes(self) -> Array:
        """Bytes of each example on the wire."""
        if self.array is None:
            return np.array([_size(image) + 6 for image in self.images], np.int64)
        return np.full(len(self.array), self.array[0].nbytes, np.int64)

    def check_shape(self, expected: Sequence[int]) -> None:
        """Refuse arrays of another shape than the learner's."""
        if self.array is None or not expected or tuple(expected) == self.array.shape[1:]:
            return
        raise local_error(
            ShapeMismatchError,
            f"the learner takes examples of shape {tuple(expected)}, not {self.array.shape[1:]}",
            expected=list(expected),
            found=list(self.array.shape[1:]),
        )

    def encode(self, start: int, stop: int) -> tensor_pb2.Inputs:
        """Write the examples from one index to another."""
        if self.array is None:
            files = [image if isinstance(image, bytes) else image.read_bytes() for image in self.images[start:stop]]
            return tensor_pb2.Inputs(images=tensor_pb2.EncodedImages(images=files, resize=self.resize))
        part = self.array[start:stop]
        little = part.astype(part.dtype.newbyteorder("<"), copy=False)
        return tensor_pb2.Inputs(
            tensor=tensor_pb2.Tensor(dtype=_DTYPES[part.dtype], shape=part.shape, data=little.tobytes())
        )


def to_examples(x: Any, *, resize: bool = False) -> Examples:
    """Check a batch of any accepted kind.

    Arrays (numpy, or anything with `__array__`): vectors `(n, features)`, images `(n, channels, height, width)` or, if
    grey, `(n, height, width)`. Images: a list of paths, PIL images or bytes of PNG, JPEG, WebP and BMP files, or one.
    """
    if _is_image(x):
        return Examples(images=[_check_image(x, 0)], resize=resize)
    if isinstance(x, list | tuple) and any(_is_image(item) for item in x):
        return Examples(images=[_check_image(item, index) for index, item in enumerate(x)], resize=resize)
    return Examples(array=_read_array(x))


def split(sizes: Array, limit_bytes: int, limit_examples: int) -> Iterator[slice]:
    """Split a batch into parts that fit a message, by the bytes of each example."""
    room = limit_bytes - OVERHEAD_BYTES
    if sizes.max() > room:
        index = int(np.argmax(sizes > room))
        raise local_error(
            MessageTooLargeError,
            f"example {index} takes {sizes[index]} bytes, more than the {room} that one message has room for",
            example=index,
            bytes=sizes[index],
            limit=room,
        )
    ends = np.cumsum(sizes)  # of the bytes up to and with each example
    start, used = 0, 0
    while start < len(sizes):
        stop = min(int(np.searchsorted(ends, used + room, side="right")), start + limit_examples)
        yield slice(start, stop)
        start, used = stop, int(ends[stop - 1])


def _is_image(item: Any) -> bool:
    is_pil = hasattr(item, "save") and hasattr(item, "mode") and hasattr(item, "convert")
    return is_pil or isinstance(item, str | bytes | os.PathLike)


def _size(image: bytes | Path) -> int:
    return len(image) if isinstance(image, bytes) else image.stat().st_size


def _check_image(item: Any, index: int) -> bytes | Path:
    found: bytes | Path
    if isinstance(item, bytes):
        found, start, name = item, item[:12], f"image {index}"
    elif isinstance(item, str | os.PathLike):
        found, name = Path(item), str(item)
        with found.open("rb") as file:
            start = file.read(12)
    elif _is_image(item):
        buffer = io.BytesIO()
        (item if item.mode in _PNG_MODES else item.convert("RGB")).save(buffer, "PNG")
        return buffer.getvalue()
    else:
        raise local_error(
            FieldInvalidError,
            f"example {index} is {type(item).__name__}, among images: not a path, bytes or a PIL image",
            example=index,
        )
    if not start.startswith(_MAGIC) and not (start.startswith(b"RIFF") and start.endswith(b"WEBP")):
        raise local_error(ImageMalformedError, f"{name} is no PNG, JPEG, WebP or BMP", example=index)
    return found


def _read_array(x: Any) -> Array:
    if not hasattr(x, "__array__") and isinstance(x, list | tuple) and x and hasattr(x[0], "__array__"):
        x = np.stack([np.asarray(item) for item in x])
    array = np.asarray(x)
    if array.ndim == 3:
        array = array[:, None]  # grey images
    if array.ndim not in (2, 4) or 0 in array.shape:
        raise local_error(
            ShapeMismatchError,
            f"a batch is (n, features), (n, height, width) or (n, channels, height, width) with n and all else at "
            f"least 1, not {np.shape(x)}; for one example, use x[None]",
            found=list(np.shape(x)),
        )
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.floating):
        raise local_error(
            DtypeUnsupportedError,
            f"the dtype {array.dtype} is not supported: use uint8 for values of 0 to 255, or else float32",
            dtype=array.dtype,
        )
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        first = int(np.argmin(finite.reshape(len(array), -1).all(axis=1)))
        raise local_error(
            NonFiniteValuesError, f"example {first} holds a NaN, an infinity or more than float32 can", example=first
        )
    return array
