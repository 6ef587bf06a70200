"""From what users say about a new learner to its configuration on the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sharp.v1 import label_pb2, learner_pb2

from ._answers import LearnerConfig

LabelKind = Literal["text", "integer"]
"""Whether classes are named by texts or by integers."""

_KINDS: Mapping[str | None, label_pb2.LabelKind.ValueType] = {
    None: label_pb2.LABEL_KIND_UNSPECIFIED,
    "text": label_pb2.LABEL_KIND_TEXT,
    "integer": label_pb2.LABEL_KIND_INTEGER,
}


def learner_config(
    preset: str,
    overrides: Mapping[str, Any] | None,
    input_shape: Sequence[int],
    label_kind: str | None,
    seed: int,
) -> learner_pb2.LearnerConfig:
    """Write a configuration; values of settings become JSON, texts stay as they are."""
    if label_kind not in _KINDS:
        raise ValueError(f"label_kind must be 'text', 'integer' or None, not {label_kind!r}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be 0 or more and less than 2^63, not {seed}")
    if any(size < 1 for size in input_shape):
        raise ValueError(f"each size of input_shape must be at least 1, not {tuple(input_shape)}")
    return learner_pb2.LearnerConfig(
        preset=preset,
        overrides={
            key: value if isinstance(value, str) else json.dumps(value) for key, value in (overrides or {}).items()
        },
        input_shape=input_shape,
        label_kind=_KINDS[label_kind],
        seed=seed,
    )


def encode_config(config: LearnerConfig) -> learner_pb2.LearnerConfig:
    """Write a configuration as `create` takes it."""
    return learner_config(config.preset, config.overrides, config.input_shape, config.label_kind or None, config.seed)
