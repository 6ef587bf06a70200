"""Requests that take more than a line to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sharp.v1 import learner_admin_pb2, learning_pb2, prediction_pb2

from ._batching import check_id, check_learner_name, to_labelled
from ._errors import MessageTooLargeError
from ._failures import local_error
from ._inputs import split, to_examples
from ._labels import Label, encode_label, encode_labels, label_sizes
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
    min_examples: int = 0,
    resize: bool = False,
) -> Iterator[prediction_pb2.PredictRequest]:
    """Check examples and cut them into messages under the limits."""
    if learner:
        check_learner_name(learner)
    for name, value in (
        ("top_k", top_k),
        ("nearest_memories", nearest_memories),
        ("min_model_version", min_model_version),
        ("min_examples", min_examples),
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
            min_examples=min_examples,
        )


def teach_request(
    learner: str, x: Any, y: Any, request_id: str, *, create: bool, resize: bool, limits: Limits
) -> learning_pb2.TeachRequest:
    """Check a lesson and write it: one message, which is taken whole or not at all."""
    check_learner_name(learner)
    check_id(request_id, "a lesson")
    if isinstance(y, str | int):  # one label for all of them
        y = [y] * len(to_examples(x))
    examples, labels = to_labelled(x, y, resize)
    parts = list(split(examples.sizes() + label_sizes(labels), limits.message_bytes, len(labels)))
    if len(parts) > 1:
        raise local_error(
            MessageTooLargeError,
            f"the lesson of {len(labels)} examples is too large for one message: send episodes with learn()",
            examples=len(labels),
            limit=limits.message_bytes,
        )
    return learning_pb2.TeachRequest(
        learner=learner,
        request_id=request_id,
        inputs=examples.encode(0, len(labels)),
        labels=encode_labels(labels),
        create_if_missing=create,
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
