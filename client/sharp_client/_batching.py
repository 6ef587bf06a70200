"""From what a producer sends to the messages of a learn stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from sharp.v1 import learning_pb2

from ._answers import LearnerConfig, OpenedStream
from ._configs import encode_config
from ._failures import local_error
from ._inputs import OVERHEAD_BYTES, Examples, split, to_examples
from ._labels import Label, check_kind, encode_labels, label_sizes, to_labels
from ._options import BATCH_EXAMPLES, MESSAGE_BYTES
from ._reasons import LabelCountMismatchError, NameInvalidError

Boundaries = Literal["explicit", "automatic"]
"""Where episodes end: where the producer says, or where the server finds a change in the stream."""

Backpressure = Literal["block", "fail"]
"""What happens at the learner's byte limit: sending blocks, or fails with JournalFullError."""

_BOUNDARIES = {"explicit": learning_pb2.BOUNDARIES_EXPLICIT, "automatic": learning_pb2.BOUNDARIES_AUTOMATIC}
_BACKPRESSURE = {"block": learning_pb2.BACKPRESSURE_BLOCK, "fail": learning_pb2.BACKPRESSURE_FAIL}
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_learner_name(name: str) -> str:
    """Refuse a name that no learner can have."""
    if not (1 <= len(name) <= 63 and set(name) <= _NAME_CHARACTERS and name[0].isalnum()):
        raise local_error(
            NameInvalidError,
            f"{name!r} is no name for a learner: 1 to 63 of letters, digits, '.', '_' and '-', a letter or digit first",
            name=name,
        )
    return name


def check_id(chosen: str, what: str) -> None:
    """Refuse an id that nothing of the kind can have."""
    if not (1 <= len(chosen) <= 128 and set(chosen) <= _NAME_CHARACTERS | {":", "/"}):
        raise local_error(
            NameInvalidError,
            f"{chosen!r} is no id for {what}: 1 to 128 of letters, digits, '.', '_', ':', '/' and '-'",
            name=chosen,
        )


def opening(
    learner: str, stream_id: str, boundaries: Boundaries, backpressure: Backpressure, create: bool | LearnerConfig
) -> learning_pb2.Open:
    """Write the first message of a stream; `create`: whether, and how."""
    check_learner_name(learner)
    check_id(stream_id, "a stream")
    if boundaries not in _BOUNDARIES:
        raise ValueError(f"boundaries must be one of {sorted(_BOUNDARIES)}, not {boundaries!r}")
    if backpressure not in _BACKPRESSURE:
        raise ValueError(f"backpressure must be one of {sorted(_BACKPRESSURE)}, not {backpressure!r}")
    return learning_pb2.Open(
        learner=learner,
        stream_id=stream_id,
        boundaries=_BOUNDARIES[boundaries],
        backpressure=_BACKPRESSURE[backpressure],
        create_if_missing=bool(create),
        config=None if isinstance(create, bool) else encode_config(create),
    )


def check_batch(x: Any, y: Any) -> None:
    """Raise what is wrong with labelled examples in themselves, as `LearnStream.send` would, without any server."""
    to_labelled(x, y, False)


def to_labelled(x: Any, y: Any, resize: bool) -> tuple[Examples, list[Label]]:
    """Check labelled examples in themselves."""
    examples, labels = to_examples(x, resize=resize), to_labels(y)
    if len(examples) != len(labels):
        raise local_error(
            LabelCountMismatchError,
            f"there are {len(examples)} examples and {len(labels)} labels",
            examples=len(examples),
            labels=len(labels),
        )
    return examples, labels


def to_batches(
    x: Any, y: Any, resize: bool, opened: OpenedStream, largest: int
) -> Iterator[tuple[learning_pb2.Batch, int, int]]:
    """Check labelled examples and split them into batches under the server's limits: batch, bytes, examples.

    `largest` limits the bytes of a batch further, so that several are in flight at once.
    Everything is checked before the first batch is returned, so that an error at the end of an array sends nothing.
    """
    examples, labels = to_labelled(x, y, resize)
    examples.check_shape(opened.input_shape)
    check_kind(labels, opened.label_kind)
    sizes = examples.sizes() + label_sizes(labels)
    limit_bytes = min(opened.message_bytes_limit or MESSAGE_BYTES, max(largest, int(sizes.max()) + OVERHEAD_BYTES))
    parts = list(split(sizes, limit_bytes, opened.batch_examples_limit or BATCH_EXAMPLES))
    for part in parts:
        batch = learning_pb2.Batch(inputs=examples.encode(part.start, part.stop), labels=encode_labels(labels[part]))
        yield batch, int(sizes[part].sum()), part.stop - part.start
