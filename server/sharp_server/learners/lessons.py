"""Teaching a few labelled examples at once: checked, durable, known. All of a lesson, or nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from sharp_engine import Label
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.inputs import Examples
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import check_architecture, teaching_refusal
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import LessonRow, NewLesson
from sharp_server.teaching.teaching import Teaching


@dataclass(frozen=True)
class LessonReport:
    """What a lesson came to: it serves when this is given."""

    version: int
    examples_beyond_version: int
    examples_known: int
    examples: int
    new_classes: tuple[Label, ...]
    corrections: int
    repetition: bool


class Lessons:
    """Teaches learners."""

    def __init__(self, limits: LimitsConfig, storage: Storage, teaching: Teaching, metrics: Metrics) -> None:
        self._limits, self._storage, self._teaching, self._metrics = limits, storage, teaching, metrics

    def check(self, served: ServedLearner) -> None:
        """Refuse early what can't be taught whatever the examples are."""
        refusal = teaching_refusal(served.config, served.input_shape, served.model.episodes)
        if refusal is not None:
            raise refusal

    async def teach(
        self, served: ServedLearner, request_id: str, examples: Examples, labels: list[Label]
    ) -> LessonReport:
        """Teach decoded examples."""
        shape, count = tuple(examples.x.shape[1:]), len(labels)
        self._check_fit(served, shape, count)
        self._check_room(served, len(examples.data) + 4 * count)
        content = _content(examples, labels)
        await self._storage.room()
        if served.input_shape is not None and served.input_shape != shape:
            raise _another_shape(served.input_shape, shape)
        # From here on nothing waits until it is on its way to the disk: what is decided and what is written agree.
        y = served.classes.number(labels, self._limits.classes)
        new_classes = served.classes.not_durable(labels)
        kind = "text" if isinstance(labels[0], str) else "integer"
        served.fix_inputs(shape, kind)

        def make(counted: int) -> NewLesson:
            return NewLesson(
                learner=served.id,
                request_id=request_id,
                content=content,
                counted=counted,
                count=count,
                dtype=examples.dtype,
                x=examples.data,
                y=y.tobytes(),
                new_classes=new_classes,
                fixes=None if served.inputs_durable else (json.dumps(shape), kind),
            )

        def durable(row: LessonRow) -> None:
            if row.repetition:
                return
            served.inputs_are_durable()
            served.classes.made_durable(ordinal for ordinal, _ in new_classes)
            self._metrics.examples_taught.inc(count)

        try:
            lesson = await self._teaching.teach(served, make, durable, examples.x, labels)
        finally:
            served.unfix_inputs()
        model = served.model
        return LessonReport(
            version=model.version,
            examples_beyond_version=model.examples_beyond_version,
            examples_known=served.examples_known,
            examples=lesson.row.examples,
            new_classes=tuple(json.loads(text) for text in lesson.row.new_classes),
            corrections=lesson.corrections,
            repetition=lesson.row.repetition,
        )

    def _check_fit(self, served: ServedLearner, shape: tuple[int, ...], count: int) -> None:
        limit = self._limits.lesson_examples
        if count > limit:
            message = f"a lesson has at most {limit} examples; send more of them over Learn"
            raise RpcError("TOO_MANY_EXAMPLES", message, examples=count, limit=limit, fields=("inputs",))
        if served.input_shape is None:
            check_architecture(served.config, shape)
        refusal = teaching_refusal(served.config, shape, served.model.episodes)
        if refusal is not None:
            raise refusal

    def _check_room(self, served: ServedLearner, nbytes: int) -> None:
        limit, backlog = self._limits.unlearned_bytes, served.backlog
        if backlog.bytes + nbytes <= limit:
            return
        if backlog.next() is None and not self._teaching.lessons(served):
            message = "the limit of unlearned bytes is filled by episodes that are not ended, or are parked"
            raise RpcError("EPISODE_TOO_LARGE", message, bytes=backlog.bytes, limit=limit)
        message = "the learner has taken as many bytes as it may hold unlearned"
        raise RpcError("JOURNAL_FULL", message, retry=2.0, bytes=backlog.bytes, limit=limit)


def _another_shape(expected: tuple[int, ...], found: tuple[int, ...]) -> RpcError:
    message = "another shape was fixed meanwhile"
    return RpcError("SHAPE_MISMATCH", message, expected=list(expected), found=list(found), fields=("inputs",))


def _content(examples: Examples, labels: list[Label]) -> bytes:
    """What tells one lesson from another."""
    digest = hashlib.sha256(f"{examples.dtype}{examples.x.shape}{json.dumps(labels)}".encode())
    digest.update(examples.data)
    return digest.digest()
