"""Teaching a few labelled examples at once: vectors in JSON, images as files."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form

from sharp_engine import Label
from sharp_server.api.decode import InputDecoder, labels_of
from sharp_server.errors import RpcError
from sharp_server.http import models
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name
from sharp_server.http.routes.predictions import Images, Resize, image_examples, vector_examples
from sharp_server.learners.inputs import Examples
from sharp_server.learners.lessons import Lessons
from sharp_server.learners.messages import labels_message
from sharp_server.learners.names import stream_id
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.server_state import ServerState

_INT64 = 1 << 63


def routers(
    guard: HttpGuard, state: ServerState, registry: Registry, decoder: InputDecoder, lessons: Lessons
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("learn", "lessons")

    def ready(name: str, request_id: str) -> ServedLearner:
        served = registry.get(name)
        stream_id(request_id, "request_id", "a request id")
        lessons.check(served)
        return served

    async def taught(served: ServedLearner, request_id: str, examples: Examples, labels: list[Label]) -> models.Lesson:
        if len({type(label) for label in labels}) > 1:
            raise RpcError("LABEL_KIND_MISMATCH", "the labels are not all of one kind", fields=("labels",))
        checked = labels_of(labels_message(labels), served.label_kind, len(examples.x), "labels")
        done = await state.finish(lessons.teach(served, request_id, examples, checked))
        return models.Lesson(
            model_version=done.version,
            examples_beyond_version=done.examples_beyond_version,
            examples_known=done.examples_known,
            examples=done.examples,
            new_classes=list(done.new_classes),
            corrections=done.corrections,
            repetition=done.repetition,
        )

    @router.post("/api/learners/{name}/teach")
    async def teach(name: Name, request: models.TeachRequest) -> models.Lesson:
        """Teach labelled vectors: the next prediction knows them. Sent twice with one id, they are learned once."""
        served = ready(name, request.request_id)
        examples = await vector_examples(decoder, request.vectors, served.input_spec)
        return await taught(served, request.request_id, examples, list(request.labels))

    @router.post("/api/learners/{name}/teach/images")
    async def teach_images(
        name: Name,
        images: Images,
        labels: Annotated[list[str], Form(description="One for each image.")],
        request_id: Annotated[str, Form(description="A name of your own for this lesson.")],
        resize: Resize = False,
        label_kind: Annotated[
            Literal["text", "integer"] | None, Form(description="For a learner that has no labels yet.")
        ] = None,
    ) -> models.Lesson:
        """Teach labelled images: the next prediction knows them. Sent twice with one id, they are learned once."""
        served = ready(name, request_id)
        examples = await image_examples(decoder, images, resize, served.input_spec)
        kind = served.label_kind or label_kind
        return await taught(served, request_id, examples, [_label(text, kind) for text in labels])

    return [router]


def _label(text: str, kind: str | None) -> Label:
    """A label from a form, where everything is a text."""
    if kind != "integer":
        return text
    try:
        value = int(text)
    except ValueError:
        value = _INT64
    if not -_INT64 <= value < _INT64:
        message = "the learner's labels are integers, this is none"
        raise RpcError("LABEL_KIND_MISMATCH", message, fields=("labels",), expected="integer", found="text")
    return value
