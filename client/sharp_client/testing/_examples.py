"""Reads the examples of a request, with the checks of a real server."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sharp.v1 import label_pb2, tensor_pb2

from .._labels import Label, decode_labels
from .._reasons import (
    DtypeUnsupportedError,
    FieldInvalidError,
    ImageMalformedError,
    LabelCountMismatchError,
    LabelKindMismatchError,
    NonFiniteValuesError,
    ShapeMismatchError,
    TensorSizeMismatchError,
    TooManyExamplesError,
    ValuesOutOfRangeError,
)
from ._refusals import refuse

if TYPE_CHECKING:
    from ._learner import FakeLearner

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST_VALUE = 20.0
"""Of a float image, as by a server for a learner without a normalisation of its own."""
_DTYPES: dict[int, Any] = {tensor_pb2.DTYPE_UINT8: np.uint8, tensor_pb2.DTYPE_FLOAT32: np.dtype("<f4")}


def read_examples(inputs: tensor_pb2.Inputs, expected: list[int], limit: int, resize: bool = False) -> Array:
    """Decode the examples as float64 in the learner's shape (n, …)."""
    kind = inputs.WhichOneof("kind")
    if kind == "tensor":
        x = _read_tensor(inputs.tensor)
    elif kind == "images":
        x = _read_images(inputs.images, expected, resize or inputs.images.resize)
    else:
        raise refuse(FieldInvalidError, "inputs are missing", field="inputs")
    if expected and list(x.shape[1:]) != list(expected):
        found = list(x.shape[1:])
        raise refuse(ShapeMismatchError, f"expected {expected}, not {found}", expected=expected, found=found)
    if len(x) > limit:
        raise refuse(TooManyExamplesError, f"{len(x)} examples, over {limit}", examples=len(x), limit=limit)
    return x


def read_labelled(
    inputs: tensor_pb2.Inputs, labels: label_pb2.Labels, learner: FakeLearner, limit: int
) -> tuple[Array, list[Label], label_pb2.LabelKind.ValueType]:
    """Decode examples with their labels, and the kind of these."""
    x = read_examples(inputs, learner.input_shape, limit, learner.resize)
    y = decode_labels(labels)
    kind = label_pb2.LABEL_KIND_TEXT if labels.HasField("texts") else label_pb2.LABEL_KIND_INTEGER
    if len(y) != len(x):
        raise refuse(LabelCountMismatchError, f"{len(x)} examples, {len(y)} labels", examples=len(x), labels=len(y))
    if learner.label_kind not in (label_pb2.LABEL_KIND_UNSPECIFIED, kind):
        raise refuse(LabelKindMismatchError, "the other kind of labels", expected=learner.label_kind, found=kind)
    return x, y, kind


def _read_tensor(tensor: tensor_pb2.Tensor) -> Array:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise refuse(DtypeUnsupportedError, "no such dtype", dtype=tensor.dtype)
    if len(tensor.shape) not in (2, 4) or 0 in tensor.shape:
        raise refuse(ShapeMismatchError, f"no batch has the shape {list(tensor.shape)}", found=list(tensor.shape))
    size = math.prod(tensor.shape) * np.dtype(dtype).itemsize
    if len(tensor.data) != size:
        raise refuse(TensorSizeMismatchError, "wrong number of bytes", expected=size, found=len(tensor.data))
    x = np.frombuffer(tensor.data, dtype).reshape(tensor.shape).astype(np.float64)
    if dtype is np.uint8:
        return x / 255
    finite = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    if not finite.all():
        raise refuse(NonFiniteValuesError, "a value is not finite", example=int(np.argmin(finite)))
    large = np.abs(x.reshape(len(x), -1)).max(axis=1) > LARGEST_VALUE
    if x.ndim == 4 and large.any():
        raise refuse(
            ValuesOutOfRangeError, "float images must be scaled", example=int(np.argmax(large)), highest=x.max()
        )
    return x


def _read_images(encoded: tensor_pb2.EncodedImages, expected: list[int], resize: bool) -> Array:
    from PIL import Image  # only where a test sends image files

    images: list[Array] = []
    for index, data in enumerate(encoded.images):
        try:
            image: Image.Image = Image.open(io.BytesIO(data))
            grey = expected[0] == 1 if len(expected) == 3 else image.mode in ("1", "L", "I;16")
            image = image.convert("L" if grey else "RGB")
        except Exception:
            raise refuse(ImageMalformedError, f"image {index} can't be read", example=index) from None
        if resize and (images or len(expected) == 3):
            height, width = expected[1:] if len(expected) == 3 else images[0].shape[1:]
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        size = tuple(expected[1:]) if len(expected) == 3 else images[0].shape[1:] if images else image.size[::-1]
        if image.size[::-1] != size:
            wanted, found = (f"{height}×{width}" for height, width in (size, image.size[::-1]))
            problem = f"image {index} is {found}, expected {wanted}; with resize it is scaled"
            raise refuse(ShapeMismatchError, problem, expected=wanted, found=found, example=index)
        pixels = np.asarray(image, dtype=np.float64) / 255
        images.append(pixels[None] if grey else pixels.transpose(2, 0, 1))
    if not images:
        raise refuse(FieldInvalidError, "there are no images", field="inputs.images.images")
    return np.stack(images)
