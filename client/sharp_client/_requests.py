"""Requests that take more than a line to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sharp.v1 import learner_admin_pb2, prediction_pb2

from ._batching import check_learner_name
from ._inputs import split, to_examples
from ._labels import Label, encode_label
from ._options import Limits


def predict_requests(
    learner: str,
    x: Any,
    limits: Limits,
    *,
    top_k: int = 0,
    nearest_memories: int = 0,
    novelty: bool = False,
    min_model_version: int = 0,
    resize: bool = False,
) -> Iterator[prediction_pb2.PredictRequest]:
    """Check examples and cut them into messages under the limits."""
    if learner:
        check_learner_name(learner)
    for name, value in (
        ("top_k", top_k),
        ("nearest_memories", nearest_memories),
        ("min_model_version", min_model_version),
    ):
        if value < 0:
            raise ValueError(f"{name} must be 0 or more, not {value}")
    examples = to_examples(x, resize=resize)
    for part in list(split(examples.sizes(), limits.message_bytes, limits.batch_examples)):
        yield prediction_pb2.PredictRequest(
            learner=learner,
            inputs=examples.encode(part.start, part.stop),
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            min_model_version=min_model_version,
        )


def forget_request(learner: str, label: Label, older_snapshots: str) -> learner_admin_pb2.ForgetClassRequest:
    """Write a request to forget a class; `older_snapshots` that hold it: "list" or "delete" them."""
    choices = {"list": learner_admin_pb2.OLDER_SNAPSHOTS_LIST, "delete": learner_admin_pb2.OLDER_SNAPSHOTS_DELETE}
    if older_snapshots not in choices:
        raise ValueError(f"older_snapshots must be 'list' or 'delete', not {older_snapshots!r}")
    return learner_admin_pb2.ForgetClassRequest(
        learner=learner, label=encode_label(label), older_snapshots=choices[older_snapshots]
    )


def duration(seconds: float) -> Duration:
    """Write a time span."""
    if seconds < 0:
        raise ValueError(f"a time span must be 0 or more, not {seconds}")
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
