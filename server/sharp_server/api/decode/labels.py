"""Labels from the wire: one per example, of the learner's kind, of bounded length. Raises only `RpcError`."""

from __future__ import annotations

from typing import Any

from sharp.v1 import label_pb2
from sharp_engine import Label
from sharp_server.errors import RpcError

LONGEST_LABEL = 1024


def labels_of(labels: label_pb2.Labels, kind: str | None, examples: int, at: str = "batch.labels") -> list[Label]:
    """One label per example, of the learner's kind."""
    which = labels.WhichOneof("kind")
    if which is None:
        raise RpcError("FIELD_INVALID", "the labels are missing", fields=(at,), field=at)
    found = "text" if which == "texts" else "integer"
    if kind is not None and found != kind:
        raise _kind_mismatch(kind, found, at)
    given = labels.texts.values if which == "texts" else labels.integers.values
    if len(given) != examples:
        raise RpcError(
            "LABEL_COUNT_MISMATCH",
            f"{examples} examples and {len(given)} labels",
            fields=(at,),
            examples=examples,
            labels=len(given),
        )
    values: list[Any] = given[:]
    if which == "texts":
        for text in dict.fromkeys(values):
            if not 1 <= len(text) <= LONGEST_LABEL:
                raise _label_invalid(values.index(text))
    return values


def label_of(label: label_pb2.Label, kind: str | None, field: str = "label") -> Label:
    """A single label of the learner's kind."""
    which = label.WhichOneof("kind")
    if which is None:
        raise RpcError("FIELD_INVALID", "the label is missing", fields=(field,), field=field)
    found = "text" if which == "text" else "integer"
    if kind is not None and found != kind:
        raise _kind_mismatch(kind, found, field)
    if which == "text" and not 1 <= len(label.text) <= LONGEST_LABEL:
        raise _label_invalid(0)
    return label.text if which == "text" else label.integer


def _kind_mismatch(expected: str, found: str, field: str) -> RpcError:
    """Texts for a learner of integers, or the other way round."""
    return RpcError(
        "LABEL_KIND_MISMATCH",
        f"the learner's labels are {expected}s, these are {found}s",
        fields=(field,),
        expected=expected,
        found=found,
    )


def _label_invalid(example: int) -> RpcError:
    """A text that is empty or too long."""
    return RpcError(
        "LABEL_INVALID",
        f"label {example} must have 1 to {LONGEST_LABEL} characters",
        fields=("labels",),
        example=example,
        limit=LONGEST_LABEL,
    )
