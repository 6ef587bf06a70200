"""Labels, between Python and the wire: all texts or all integers."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sharp.v1 import label_pb2

from ._failures import local_error
from ._reasons import LabelInvalidError, LabelKindMismatchError

Label = str | int
"""The name of a class."""

LONGEST_TEXT = 1024
"""Characters of the longest text label."""

_KINDS = {str: "text", int: "integer"}


def to_label(value: Any, index: int = 0) -> Label:
    """Check one label: a text or an integer, also the numpy kind of either."""
    if isinstance(value, str):
        if not 1 <= len(value) <= LONGEST_TEXT:
            raise local_error(
                LabelInvalidError,
                f"label {index} has {len(value)} characters, not 1 to {LONGEST_TEXT}",
                example=index,
                limit=LONGEST_TEXT,
            )
        return str(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_):
        if not -(2**63) <= int(value) < 2**63:
            raise local_error(LabelInvalidError, f"label {index} is {value}, over 64 bits", example=index)
        return int(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # an array or tensor of one number
        return to_label(value.item(), index)
    raise local_error(LabelInvalidError, f"label {index} is {value!r}, neither a text nor an integer", example=index)


def to_labels(values: Any) -> list[Label]:
    """Check many labels: a list, an array, anything with `__array__`. All must be of one kind."""
    if isinstance(values, str | bytes) or (not isinstance(values, Iterable) and not hasattr(values, "__array__")):
        raise local_error(LabelInvalidError, f"labels must be a list or an array, not {values!r}")
    if not isinstance(values, list | tuple):
        values = np.asarray(values)
        if values.ndim != 1:
            raise local_error(LabelInvalidError, f"labels must have one dimension, not the shape {values.shape}")
        is_fine = np.issubdtype(values.dtype, np.integer) and values.dtype != np.uint64
        values = values.tolist()
        if is_fine:
            return list(values)
    if all(type(value) is int for value in values) and values and -(2**63) <= min(values) <= max(values) < 2**63:
        return list(values)
    labels = [to_label(value, index) for index, value in enumerate(values)]
    for index, label in enumerate(labels):
        if type(label) is not type(labels[0]):
            raise local_error(
                LabelKindMismatchError,
                f"label {index} is {label!r} among labels such as {labels[0]!r}: all texts or all integers",
                expected=_KINDS[type(labels[0])],
                found=_KINDS[type(label)],
            )
    return labels


def check_kind(labels: Sequence[Label], expected: str) -> None:
    """Refuse texts for a learner of integers, and the other way round. Empty: the learner takes either."""
    if not labels or not expected:
        return
    found = _KINDS[type(labels[0])]
    if found != expected:
        raise local_error(
            LabelKindMismatchError,
            f"the labels of the learner are {expected}s, and {labels[0]!r} is none",
            expected=expected,
            found=found,
        )


def encode_label(value: Any) -> label_pb2.Label:
    """Write one label."""
    label = to_label(value)
    return label_pb2.Label(text=label) if isinstance(label, str) else label_pb2.Label(integer=label)


def decode_label(message: label_pb2.Label) -> Label:
    """Read one label."""
    return message.text if message.WhichOneof("kind") == "text" else message.integer


def encode_labels(labels: Sequence[Label]) -> label_pb2.Labels:
    """Write labels that `to_labels` has checked."""
    if labels and isinstance(labels[0], str):
        return label_pb2.Labels(texts=label_pb2.TextLabels(values=labels))  # type: ignore[arg-type]
    return label_pb2.Labels(integers=label_pb2.IntegerLabels(values=labels))  # type: ignore[arg-type]


def label_sizes(labels: Sequence[Label]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Estimate the bytes of each label on the wire, from above."""
    if labels and isinstance(labels[0], int):
        return np.full(len(labels), 10, np.int64)
    return np.array([len(str(label).encode()) + 4 for label in labels], np.int64)


def decode_labels(message: label_pb2.Labels) -> list[Label]:
    """Read labels."""
    return list(message.texts.values if message.WhichOneof("kind") == "texts" else message.integers.values)


def label_array(labels: Sequence[Label]) -> np.ndarray[Any, np.dtype[Any]]:
    """Put labels into an array: int64 for integers, texts as they are."""
    return np.array(labels, dtype=np.int64 if labels and isinstance(labels[0], int) else None)
