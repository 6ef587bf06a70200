"""From what came over the wire to arrays and labels, with every check. Trusts nothing; copies nothing it need not.

Raises only `RpcError`. Nothing is decoded before its size is known to be within the limits: an image's from its header,
a tensor's from its shape, computed in Python's unbounded integers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharp.v1 import label_pb2, tensor_pb2
from sharp_engine import Label
from sharp_server.api.decode import png
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError

LONGEST_LABEL = 1024
MOST_SIDES = 9
"""Of a shape that is looked at: more than any may have, so one that is cut here is refused like any other."""
INLINE_BYTES = 1 << 16
"""Up to this many bytes are checked on the event loop; more go to a thread."""

_IMAGES_OF_FULL_SIZE = 8
"""So many of the largest images, or their pixels in smaller ones, may come in one message: decoding takes time."""
_MOST_SCANS = 100
"""Of one JPEG; each is decoded over the whole image. Progressive ones have about ten."""

_DTYPES: dict[int, tuple[np.dtype[Any], int]] = {
    tensor_pb2.DTYPE_UINT8: (np.dtype(np.uint8), 1),
    tensor_pb2.DTYPE_FLOAT32: (np.dtype("<f4"), 4),
}


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples that passed every check: the array is a view of `data`."""

    x: NDArray[Any]
    data: bytes

    @property
    def dtype(self) -> str:
        """As the journal writes it."""
        return "u1" if self.x.dtype == np.uint8 else "f4"


def tensor_examples(
    tensor: tensor_pb2.Tensor, shape: tuple[int, ...] | None, limits: LimitsConfig, at: str = "inputs.tensor"
) -> Examples:
    """A tensor's examples; `shape` is the learner's, where it is settled."""
    return raw_examples(tensor.dtype, tuple(tensor.shape[:MOST_SIDES]), tensor.data, shape, limits, at)


def raw_examples(
    dtype: int, dims: tuple[int, ...], data: bytes, shape: tuple[int, ...] | None, limits: LimitsConfig, at: str
) -> Examples:
    """Examples from dtype, shape and bytes."""
    known = _DTYPES.get(dtype)
    if known is None:
        raise RpcError("DTYPE_UNSUPPORTED", "the dtype must be UINT8 or FLOAT32", dtype=dtype, fields=(f"{at}.dtype",))
    if shape is not None and dims[1:] != shape or len(dims) < 2:
        expected = ["n", *shape] if shape is not None else "[n, features] or [n, channels, height, width]"
        raise RpcError(
            "SHAPE_MISMATCH",
            f"the examples have shape {_shown(dims)}, expected {_shown(expected)}",
            fields=(f"{at}.shape",),
            expected=_shown(expected),
            found=_shown(dims),
        )
    size = 1
    for side in dims:
        if side < 1:
            raise RpcError(
                "FIELD_INVALID", "every size must be at least 1", fields=(f"{at}.shape",), field=f"{at}.shape"
            )
        size *= side
    check_count(dims[0], limits)
    if shape is None:
        check_shape(dims[1:], limits, f"{at}.shape")
    numpy_type, width = known
    if size * width != len(data):
        raise RpcError(
            "TENSOR_SIZE_MISMATCH",
            f"the shape asks for {size * width} bytes, {len(data)} came",
            fields=(f"{at}.data",),
            expected=size * width,
            found=len(data),
        )
    x: NDArray[Any] = np.frombuffer(data, numpy_type).reshape(dims)
    if width == 4 and not np.isfinite(x).all():
        rows = np.isfinite(x.reshape(dims[0], -1)).all(1)
        row = int(np.argmin(rows))
        raise RpcError(
            "NON_FINITE_VALUES", f"example {row} has a NaN or an infinity", fields=(f"{at}.data",), example=row
        )
    return Examples(x, data)


def check_shape(shape: tuple[int, ...], limits: LimitsConfig, at: str) -> None:
    """Whether an example of this shape can be taken at all."""
    if len(shape) not in (1, 3):
        raise RpcError(
            "SHAPE_MISMATCH",
            "examples are [features] or [channels, height, width]",
            fields=(at,),
            expected="[features] or [channels, height, width]",
            found=_shown(shape),
        )
    size = 1
    for side in shape:
        size *= side
    if size > limits.example_values:
        message = f"one example has {size} numbers, more than {limits.example_values}"
        raise RpcError("FIELD_INVALID", message, fields=(at,), field=at, limit=limits.example_values)


def check_count(examples: int, limits: LimitsConfig) -> None:
    """Whether one message may hold that many examples."""
    if examples > limits.batch_examples:
        raise RpcError(
            "TOO_MANY_EXAMPLES",
            f"{examples} examples in one message, more than {limits.batch_examples}: split it",
            examples=examples,
            limit=limits.batch_examples,
        )


def _shown(shape: object) -> str:
    if isinstance(shape, str):
        return shape
    return "[" + ", ".join(map(str, list(shape)[:8])) + "]"  # type: ignore[call-overload]


# ---- images -------------------------------------------------------------------------------------------------------


def image_examples(
    images: Sequence[bytes],
    resize: bool,
    shape: tuple[int, ...] | None,
    limits: LimitsConfig,
    at: str = "inputs.images",
) -> Examples:
    """Decoded images as bytes of [n, channels, height, width]; run this in a thread."""
    if not images:
        raise RpcError("FIELD_INVALID", "there are no images", fields=(f"{at}.images",), field=f"{at}.images")
    check_count(len(images), limits)
    if shape is not None and len(shape) != 3:
        message = "a learner of vectors takes no images"
        raise RpcError("SHAPE_MISMATCH", message, fields=(at,), expected=_shown(("n", *shape)), found="images")
    headers = [_header(image, i, limits) for i, image in enumerate(images)]
    if sum(height * width for height, width, _ in headers) > limits.image_pixels * _IMAGES_OF_FULL_SIZE:
        raise RpcError("TOO_MANY_EXAMPLES", "the images have too many pixels together: split the message",
                      examples=len(images), limit=limits.batch_examples)  # fmt: skip
    if shape is None:
        first = headers[0]
        for i, header in enumerate(headers):
            if header[:2] != first[:2] and not resize:
                raise _wrong_size(i, header, first)
        shape = (1 if all(grey for _, _, grey in headers) else 3, first[0], first[1])
        check_shape(shape, limits, at)
    if len(images) * shape[0] * shape[1] * shape[2] > limits.message_bytes * 4:
        raise RpcError("TOO_MANY_EXAMPLES", "the decoded images are too large together: split the message",
                      examples=len(images), limit=limits.batch_examples)  # fmt: skip
    out = np.empty((len(images), *shape), np.uint8)
    for i, (image, header) in enumerate(zip(images, headers, strict=True)):
        if not resize and header[:2] != shape[1:]:
            raise _wrong_size(i, header, shape[1:])
        out[i] = _decoded(image, i, shape)
    return Examples(out, out.tobytes())


def _wrong_size(i: int, found: tuple[int, int, bool], wanted: tuple[Any, ...]) -> RpcError:
    expected, got = f"{wanted[0]}×{wanted[1]}", f"{found[0]}×{found[1]}"
    return RpcError(
        "SHAPE_MISMATCH",
        f"image {i} is {got}, expected {expected}; with resize it is scaled",
        fields=(f"inputs.images.images[{i}]",),
        expected=expected,
        found=got,
        example=i,
    )


def _malformed(i: int, why: str) -> RpcError:
    return RpcError("IMAGE_MALFORMED", f"image {i} {why}", example=i, fields=(f"inputs.images.images[{i}]",))


def _header(image: bytes, i: int, limits: LimitsConfig) -> tuple[int, int, bool]:
    """(height, width, whether it is grey) from the header alone."""
    if image[:8] == png.SIGNATURE:
        try:
            width, height, _, colour, _ = png.header(image)
        except png.Malformed as defect:
            raise _malformed(i, str(defect)) from None
        grey = colour in (0, 4)
    elif image[:2] == b"\xff\xd8":
        height, width, components = _jpeg_size(image, i)
        grey = components == 1
        if image.count(b"\xff\xda") > _MOST_SCANS:
            raise _malformed(i, f"is a JPEG of more than {_MOST_SCANS} scans")
    else:
        raise _malformed(i, "is neither a PNG nor a JPEG")
    if not width or not height:
        raise _malformed(i, "has no pixels")
    if width * height > limits.image_pixels:
        raise RpcError(
            "IMAGE_TOO_LARGE",
            f"image {i} has {width}×{height} pixels, more than {limits.image_pixels}",
            fields=(f"inputs.images.images[{i}]",),
            example=i,
            pixels=width * height,
            limit=limits.image_pixels,
        )
    return height, width, grey


def _jpeg_size(image: bytes, i: int) -> tuple[int, int, int]:
    """(height, width, components) from the first frame header."""
    place, end = 2, len(image)
    while place + 4 <= end:
        if image[place] != 0xFF:
            break
        marker = image[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if marker in (0x01, *range(0xD0, 0xD8)):
            place += 2
            continue
        length = int.from_bytes(image[place + 2 : place + 4], "big")
        if length < 2:
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if place + 10 > end:
                break
            height, width = struct.unpack(">HH", image[place + 5 : place + 9])
            return height, width, image[place + 9]
        place += 2 + length
    raise _malformed(i, "is a JPEG without a frame header")


def _decoded(image: bytes, i: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.functional import resize as resized

    mode = {1: ImageReadMode.GRAY, 3: ImageReadMode.RGB}.get(shape[0])
    if mode is None:
        message = f"images have 1 or 3 channels, the learner {shape[0]}"
        raise RpcError(
            "SHAPE_MISMATCH", message, expected=_shown(("n", *shape)), found="images", fields=("inputs.images",)
        )
    try:
        whole = png.rewritten(image) if image[:8] == png.SIGNATURE else image
        pixels = decode_image(torch.frombuffer(bytearray(whole), dtype=torch.uint8), mode)
    except png.Malformed as defect:
        raise _malformed(i, str(defect)) from None
    except (RuntimeError, ValueError):
        raise _malformed(i, "is damaged") from None
    if pixels.dtype == torch.uint16:  # a PNG of 16 bits per channel: the upper half is what 8 bits would be
        pixels = pixels.to(torch.int32) >> 8
    if tuple(pixels.shape[1:]) != shape[1:]:
        pixels = resized(pixels, list(shape[1:]), antialias=True)
    array: NDArray[np.uint8] = pixels.to(torch.uint8).numpy()
    return array


def inputs_need_thread(inputs: tensor_pb2.Inputs) -> bool:
    """Whether the check of these inputs is too much work for the event loop.

    By what they claim to be: asking a message for its size writes all of it out. A claim that is not true is refused
    before the work begins.
    """
    kind = inputs.WhichOneof("kind")
    if kind != "tensor" or inputs.tensor.dtype != tensor_pb2.DTYPE_FLOAT32:  # bytes are all good
        return kind == "images"
    return math.prod(inputs.tensor.shape[:MOST_SIDES]) * 4 > INLINE_BYTES


def examples_of(inputs: tensor_pb2.Inputs, shape: tuple[int, ...] | None, limits: LimitsConfig) -> Examples:
    """The examples of a message in either form."""
    kind = inputs.WhichOneof("kind")
    if kind == "tensor":
        return tensor_examples(inputs.tensor, shape, limits)
    if kind == "images":
        return image_examples(inputs.images.images, inputs.images.resize, shape, limits)
    raise RpcError("FIELD_INVALID", "the examples are missing", fields=("inputs",), field="inputs")


# ---- labels -------------------------------------------------------------------------------------------------------


def labels_of(labels: label_pb2.Labels, kind: str | None, examples: int) -> list[Label]:
    """One label per example, of the learner's kind."""
    which = labels.WhichOneof("kind")
    if which is None:
        raise RpcError("FIELD_INVALID", "the labels are missing", fields=("batch.labels",), field="batch.labels")
    found = "text" if which == "texts" else "integer"
    if kind is not None and found != kind:
        raise kind_mismatch(kind, found, "batch.labels")
    given = labels.texts.values if which == "texts" else labels.integers.values
    if len(given) != examples:
        raise RpcError(
            "LABEL_COUNT_MISMATCH",
            f"{examples} examples and {len(given)} labels",
            fields=("batch.labels",),
            examples=examples,
            labels=len(given),
        )
    values: list[Any] = given[:]
    if which == "texts":
        for text in dict.fromkeys(values):
            if not 1 <= len(text) <= LONGEST_LABEL:
                raise label_invalid(values.index(text))
    return values


def label_of(label: label_pb2.Label, kind: str | None) -> Label:
    """A single label of the learner's kind."""
    which = label.WhichOneof("kind")
    if which is None:
        raise RpcError("FIELD_INVALID", "the label is missing", fields=("label",), field="label")
    found = "text" if which == "text" else "integer"
    if kind is not None and found != kind:
        raise kind_mismatch(kind, found, "label")
    if which == "text" and not 1 <= len(label.text) <= LONGEST_LABEL:
        raise label_invalid(0)
    return label.text if which == "text" else label.integer


def kind_mismatch(expected: str, found: str, field: str) -> RpcError:
    """Texts for a learner of integers, or the other way round."""
    return RpcError(
        "LABEL_KIND_MISMATCH",
        f"the learner's labels are {expected}s, these are {found}s",
        fields=(field,),
        expected=expected,
        found=found,
    )


def label_invalid(example: int) -> RpcError:
    """A text that is empty or too long."""
    return RpcError(
        "LABEL_INVALID",
        f"label {example} must have 1 to {LONGEST_LABEL} characters",
        fields=("labels",),
        example=example,
        limit=LONGEST_LABEL,
    )
