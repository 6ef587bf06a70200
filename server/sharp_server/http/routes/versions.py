"""How good the versions of a learner are, and the step back; names of classes corrected."""

from __future__ import annotations

from fastapi import APIRouter

from sharp_server.api.admin import Operations
from sharp_server.api.decode import label_of
from sharp_server.api.messages import snapshot_message
from sharp_server.api.paging import page
from sharp_server.http import conversion, models
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name, PageSize, PageToken
from sharp_server.learners.messages import label_message
from sharp_server.learners.quality_messages import quality_message
from sharp_server.learners.registry import Registry
from sharp_server.runtime.server_state import ServerState


def routers(guard: HttpGuard, state: ServerState, registry: Registry, operations: Operations) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "versions")

    @router.get("/api/learners/{name}/quality")
    async def list_quality(name: Name, page_size: PageSize = 0, page_token: PageToken = "") -> models.Qualities:
        """List how good the newest versions are on held-out examples, newest first."""
        served = registry.get(name)
        rows, kind = await operations.versions.qualities(served), f"quality {served.uid}"
        chosen, token = page(rows, lambda row: row.version, kind, page_size, page_token, descending=True)
        return models.Qualities(
            qualities=[conversion.quality(quality_message(measured, every_class=True)) for measured in chosen],
            next_page_token=token,
        )

    @router.post("/api/learners/{name}/undo")
    async def undo_version(name: Name, request: models.UndoRequest) -> models.Undone:
        """Go back to the version before the one that serves, under a new number; or only say what that would do."""
        served = registry.get(name)
        done = await state.finish(operations.versions.undo(served, request.model_version, request.preview))
        return models.Undone(
            model_version=done.serving,
            undone_model_version=done.undone.version,
            restored_model_version=done.restored.version,
            cause=done.undone.cause,
            episodes_undone=done.episodes_undone,
            episodes_waiting=done.episodes_waiting,
            classes_forgotten=done.forgotten,
        )

    @router.post("/api/learners/{name}/rename")
    async def rename_class(name: Name, request: models.RenameRequest) -> models.Relabelled:
        """Give a class another name."""
        served = registry.get(name)
        old = label_of(label_message(request.label), served.label_kind)
        new = label_of(label_message(request.new_label), served.label_kind, "new_label")
        done = await state.finish(operations.relabelling.rename(served, old, new))
        return models.Relabelled(
            model_version=done.version,
            journal_examples=done.journal_examples,
            snapshots_holding=[conversion.snapshot(snapshot_message(row, name)) for row in done.holding],
        )

    @router.post("/api/learners/{name}/merge")
    async def merge_classes(name: Name, request: models.MergeRequest) -> models.Relabelled:
        """Make one class of two: what was learned of the source counts for the target."""
        served = registry.get(name)
        source = label_of(label_message(request.source), served.label_kind, "source")
        target = label_of(label_message(request.target), served.label_kind, "target")
        done = await state.finish(operations.relabelling.merge(served, source, target))
        return models.Relabelled(
            model_version=done.version,
            journal_examples=done.journal_examples,
            snapshots_holding=[conversion.snapshot(snapshot_message(row, name)) for row in done.holding],
        )

    return [router]
