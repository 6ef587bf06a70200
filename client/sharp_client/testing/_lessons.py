"""Teach, and what the fake knows beyond its version: lessons, and examples of open episodes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sharp.v1 import label_pb2, learner_pb2, learning_pb2

from .._batching import check_id
from .._errors import SharpError
from .._labels import Label, encode_labels
from .._reasons import EpisodeNeededError, LearnerNotFoundError, MetricNeededError, RequestIdUsedError
from ._examples import Array, read_labelled
from ._refusals import refuse

if TYPE_CHECKING:
    from ._learner import FakeLearner
    from ._server import FakeServer

LESSON_EXAMPLES = 1024
"""Of one lesson at most, as by a server with default settings."""


@dataclass
class Lesson:
    """A lesson that is no part of a version yet."""

    x: Array
    y: list[Label]


@dataclass(frozen=True)
class Taught:
    """What is remembered of a lesson for good."""

    content: bytes
    examples: int
    new_classes: tuple[Label, ...]
    corrections: int


def teach(server: FakeServer, request: learning_pb2.TeachRequest) -> learning_pb2.TeachResponse:
    """Take a lesson, or answer for one that was taken before. A learner made for one that is refused goes with it."""
    check_id(request.request_id, "a lesson")
    learner = server.learners.get(request.learner)
    if learner is not None:
        return _teach(learner, request)
    if not request.create_if_missing:
        raise refuse(LearnerNotFoundError, f"there is no learner {request.learner!r}", learner=request.learner)
    learner = server.create(request.learner, learner_pb2.LearnerConfig())
    try:
        return _teach(learner, request)
    except SharpError:
        del server.learners[request.learner]
        raise


def _teach(learner: FakeLearner, request: learning_pb2.TeachRequest) -> learning_pb2.TeachResponse:
    if not learner.has_metric():
        raise refuse(MetricNeededError, "the learner has no learned metric")
    x, y, kind = read_labelled(request.inputs, request.labels, learner, LESSON_EXAMPLES)
    if x.ndim == 4 and not learner.episodes_learned and "architecture.kind" not in learner.config.overrides:
        raise refuse(EpisodeNeededError, "images are taught one by one once a first episode was learned")
    content = hashlib.sha256(request.inputs.SerializeToString() + request.labels.SerializeToString()).digest()
    before = learner.taught.get(request.request_id)
    if before is not None and before.content != content:
        raise refuse(RequestIdUsedError, "another lesson has this id", request_id=request.request_id)
    taught = before or _take(learner, Lesson(x, y), kind, content)
    learner.taught[request.request_id] = taught
    return learning_pb2.TeachResponse(
        model_version=learner.model_version,
        examples_beyond_version=learner.examples_beyond_version(),
        examples_known=learner.examples_durable,
        examples=taught.examples,
        new_classes=encode_labels(list(taught.new_classes)) if taught.new_classes else label_pb2.Labels(),
        corrections=taught.corrections,
        repetition=before is not None,
    )


def _take(learner: FakeLearner, lesson: Lesson, kind: label_pb2.LabelKind.ValueType, content: bytes) -> Taught:
    learner.input_shape, learner.label_kind = list(lesson.x.shape[1:]), kind
    wrong = len(lesson.y)
    if learner.known():
        labels, distances = learner.distances(lesson.x)
        answers = [labels[index] for index in np.argmin(distances, axis=1)]
        wrong = sum(answer != label for answer, label in zip(answers, lesson.y, strict=True))
    new = tuple(label for label in dict.fromkeys(lesson.y) if label not in learner.met)
    learner.lessons.append(lesson)
    learner.meet(lesson.y)
    return Taught(content, len(lesson.y), new, wrong)
