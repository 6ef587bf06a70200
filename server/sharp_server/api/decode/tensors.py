"""Tensors from the wire as arrays, with every check. Trusts nothing; copies nothing it need not.

Raises only `RpcError`. A size is known to be within the limits before anything is made of it, computed in Python's
unbounded integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharp.v1 import tensor_pb2
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import MOST_SIDES, Examples, InputSpec, check_shape, shape_text

INLINE_BYTES = 1 << 16
"""Up to this many bytes are checked on the event loop; more go to a thread."""

_DTYPES: dict[int, tuple[np.dtype[Any], int]] = {
    tensor_pb2.DTYPE_UINT8: (np.dtype(np.uint8), 1),
    tensor_pb2.DTYPE_FLOAT32: (np.dtype("<f4"), 4),
}


def tensor_examples(
    tensor: tensor_pb2.Tensor, spec: InputSpec, limits: LimitsConfig, at: str = "inputs.tensor"
) -> Examples:
    """A tensor's examples, as the learner takes them."""
    return raw_examples(tensor.dtype, tuple(tensor.shape[:MOST_SIDES]), tensor.data, spec, limits, at)


def raw_examples(
    dtype: int, dims: tuple[int, ...], data: bytes, spec: InputSpec, limits: LimitsConfig, at: str
) -> Examples:
    """Examples from dtype, shape and bytes."""
    shape = spec.shape
    known = _DTYPES.get(dtype)
    if known is None:
        raise RpcError("DTYPE_UNSUPPORTED", "the dtype must be UINT8 or FLOAT32", dtype=dtype, fields=(f"{at}.dtype",))
    if shape is not None and dims[1:] != shape or len(dims) < 2:
        expected = ["n", *shape] if shape is not None else "[n, features] or [n, channels, height, width]"
        raise RpcError(
            "SHAPE_MISMATCH",
            f"the examples have shape {shape_text(dims)}, expected {shape_text(expected)}",
            fields=(f"{at}.shape",),
            expected=shape_text(expected),
            found=shape_text(dims),
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
    if width == 4 and len(dims) == 4:
        _check_range(x, spec, at)
    return Examples(x, data)


def _check_range(x: NDArray[Any], spec: InputSpec, at: str) -> None:
    """Refuse float images of 0 to 255: taken as they are, they would look like nothing that bytes look like."""
    lowest, highest = float(x.min()), float(x.max())
    if spec.lowest <= lowest and highest <= spec.highest:
        return
    rows = x.reshape(len(x), -1)
    row = int(np.argmax((rows.min(1) < spec.lowest) | (rows.max(1) > spec.highest)))
    raise RpcError(
        "VALUES_OUT_OF_RANGE",
        f"the values of these float images go from {lowest:g} to {highest:g}, and this learner takes {spec.lowest:g} "
        f"to {spec.highest:g}: send pixels of 0 to 255 as uint8, or divide them by 255; for values of another kind "
        "make the learner with their architecture.mean and architecture.std",
        fields=(f"{at}.data",),
        example=row,
        lowest=f"{lowest:g}",
        highest=f"{highest:g}",
    )


def check_count(examples: int, limits: LimitsConfig) -> None:
    """Whether one message may hold that many examples."""
    if examples > limits.batch_examples:
        raise RpcError(
            "TOO_MANY_EXAMPLES",
            f"{examples} examples in one message, more than {limits.batch_examples}: split it",
            examples=examples,
            limit=limits.batch_examples,
        )


def tensor_needs_thread(tensor: tensor_pb2.Tensor) -> bool:
    """Whether the check of a tensor is too much work for the event loop.

    By what it claims to be: asking a message for its size writes all of it out. A claim that is not true is refused
    before the work begins.
    """
    if tensor.dtype != tensor_pb2.DTYPE_FLOAT32:  # bytes are all good
        return False
    return math.prod(tensor.shape[:MOST_SIDES]) * 4 > INLINE_BYTES
