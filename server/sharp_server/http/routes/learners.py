"""Learners and their classes: list, make, look at, delete; forget a class."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from sharp.v1 import label_pb2, learner_pb2
from sharp_engine import Label
from sharp_server.api.admin import LearnersElsewhere, Operations
from sharp_server.api.admin import list_learners as list_page
from sharp_server.api.decode import label_of
from sharp_server.api.messages import learner_message, snapshot_message
from sharp_server.config.model import LimitsConfig
from sharp_server.http import conversion, models
from sharp_server.http.guard import HttpGuard
from sharp_server.learners.messages import label_message
from sharp_server.learners.registry import Registry
from sharp_server.runtime.server_state import ServerState

Name = Annotated[str, Path(description="The learner's name.")]
PageSize = Annotated[int, Query(ge=0, lt=1 << 32, description="How many at most. 0: 50. Over 1000: 1000.")]
PageToken = Annotated[str, Query(description="`next_page_token` of the page before. Empty: the first page.")]

_KINDS = {"text": label_pb2.LABEL_KIND_TEXT, "integer": label_pb2.LABEL_KIND_INTEGER}


def routers(
    guard: HttpGuard,
    limits: LimitsConfig,
    state: ServerState,
    registry: Registry,
    operations: Operations,
    elsewhere: LearnersElsewhere | None = None,
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "learners")

    @router.get("/api/learners")
    async def list_learners(request: Request, page_size: PageSize = 0, page_token: PageToken = "") -> models.Learners:
        """List the learners by name."""
        found = {} if elsewhere is None else await elsewhere(dict(request.headers))
        messages, token = list_page(registry, found, limits.unlearned_bytes, page_size, page_token)
        return models.Learners(learners=[conversion.learner_summary(m) for m in messages], next_page_token=token)

    @router.post("/api/learners", status_code=201)
    async def create_learner(new: models.NewLearner) -> models.Learner:
        """Make a learner that knows nothing yet."""
        config = learner_pb2.LearnerConfig(
            preset=new.preset,
            overrides=new.overrides,
            input_shape=new.input_shape,
            label_kind=_KINDS[new.label_kind] if new.label_kind else label_pb2.LABEL_KIND_UNSPECIFIED,
            seed=new.seed,
        )
        served = await state.finish(operations.lifecycle.create(new.name, config))
        return conversion.learner(learner_message(served, limits.unlearned_bytes))

    @router.get("/api/learners/{name}")
    async def get_learner(name: Name) -> models.Learner:
        """Everything about one learner."""
        return conversion.learner(learner_message(registry.get(name), limits.unlearned_bytes))

    @router.delete("/api/learners/{name}")
    async def delete_learner(name: Name) -> models.DeletedLearner:
        """Delete a learner with all it has."""
        unlearned, snapshots = await state.finish(operations.lifecycle.delete(registry.get(name)))
        return models.DeletedLearner(unlearned_examples=unlearned, snapshots=snapshots)

    @router.get("/api/learners/{name}/classes")
    async def list_classes(name: Name) -> models.Classes:
        """The classes that answers can name."""
        message = learner_message(registry.get(name), limits.unlearned_bytes)
        return models.Classes(classes=[conversion.class_(entry) for entry in message.classes])

    @router.post("/api/learners/{name}/forget")
    async def forget_class(name: Name, request: models.ForgetRequest) -> models.Forgotten:
        """Make a learner forget a class: gone from its memories and from the journal before this answers."""
        served = registry.get(name)
        label: Label = label_of(label_message(request.label), served.label_kind)
        delete = request.older_snapshots == "delete"
        done = await state.finish(operations.forgetting.forget(served, label, delete))
        return models.Forgotten(
            model_version=done.version,
            ltm_entries=done.ltm_entries,
            stm_entries=done.stm_entries,
            journal_examples=done.journal.examples,
            discarded_episodes=[episode.number for episode in done.journal.discarded],
            snapshots_holding=[conversion.snapshot(snapshot_message(row, served.name)) for row in done.holding],
            snapshots_deleted=[conversion.snapshot(snapshot_message(row, served.name)) for row in done.deleted],
        )

    return [router]
