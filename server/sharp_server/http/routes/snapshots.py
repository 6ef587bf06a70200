"""Snapshots: make, list, restore, download, take in, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import StreamingResponse

from sharp_server.api.admin import Operations
from sharp_server.api.admission import Admission
from sharp_server.api.messages import snapshot_message
from sharp_server.api.paging import page
from sharp_server.errors import RpcError
from sharp_server.http import conversion, models
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name, PageSize, PageToken
from sharp_server.learners.importing import Offer
from sharp_server.learners.names import learner_name
from sharp_server.learners.registry import Registry
from sharp_server.learners.snapshots import check_note
from sharp_server.runtime.server_state import ServerState
from sharp_server.storage.records import SnapshotRow

SnapshotId = Annotated[str, Path(description="The snapshot's id.")]

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FILE = {"description": "The file, in safetensors' format.", "content": _BYTES}


def routers(
    guard: HttpGuard, admission: Admission, state: ServerState, registry: Registry, operations: Operations
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "snapshots")
    taking_in = guard.router("admin", "snapshots", streamed=True)

    @router.get("/api/learners/{name}/snapshots")
    async def list_snapshots(name: Name, page_size: PageSize = 0, page_token: PageToken = "") -> models.Snapshots:
        """List the snapshots of a learner, newest first."""
        served = registry.get(name)
        rows = await operations.snapshots.list(served)
        kind = f"snapshots {served.uid}"
        chosen, token = page(rows, lambda row: row.id, kind, page_size, page_token, descending=True)
        return models.Snapshots(
            snapshots=[conversion.snapshot(snapshot_message(row, name)) for row in chosen], next_page_token=token
        )

    @router.post("/api/learners/{name}/snapshots", status_code=201)
    async def create_snapshot(name: Name, new: models.NewSnapshot) -> models.Snapshot:
        """Save the version that serves."""
        row = await state.finish(operations.snapshots.create(registry.get(name), new.note))
        return conversion.snapshot(snapshot_message(row, name))

    @router.post("/api/learners/{name}/snapshots/{snapshot_id}/restore")
    async def restore_snapshot(name: Name, snapshot_id: SnapshotId, request: models.RestoreRequest) -> models.Restored:
        """Make a learner what it was when a snapshot was taken."""
        restoring = operations.restoring.restore(registry.get(name), snapshot_id, request.with_forgotten)
        done = await state.finish(restoring)
        return models.Restored(
            model_version=done.version,
            previous_model_version=done.previous,
            episodes_undone=done.undone,
            classes_forgotten=done.forgotten,
        )

    @router.delete("/api/learners/{name}/snapshots/{snapshot_id}")
    async def delete_snapshot(name: Name, snapshot_id: SnapshotId) -> models.DeletedSnapshot:
        """Delete a snapshot from the disk."""
        size = await state.finish(operations.snapshots.delete(registry.get(name), snapshot_id))
        return models.DeletedSnapshot(size_bytes=size)

    @router.get(
        "/api/learners/{name}/snapshots/{snapshot_id}/file", response_class=StreamingResponse, responses={200: _FILE}
    )
    async def download_snapshot(name: Name, snapshot_id: SnapshotId) -> StreamingResponse:
        """Download the file of a snapshot."""
        served = registry.get(name)
        admission.check_streams()
        parts = operations.snapshots.export(served, snapshot_id)
        row = await anext(parts)  # the file is open and was found whole: what follows can hardly fail
        assert isinstance(row, SnapshotRow)
        headers = {
            "Content-Length": str(row.size),
            "Content-Disposition": f'attachment; filename="{name}-{row.name}.safetensors"',
        }
        return StreamingResponse(_streamed(admission, parts), headers=headers, media_type="application/octet-stream")

    @taking_in.post(
        "/api/learners/{name}/snapshots/import",
        status_code=201,
        openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    )
    async def import_snapshot(
        name: Name,
        request: Request,
        note: Annotated[str, Query()] = "",
        restore: Annotated[bool, Query(description="Whether the learner becomes what is in the file.")] = False,
        sha256: Annotated[str, Query(description="Of the file, in hexadecimal. Empty: not checked.")] = "",
    ) -> models.Imported:
        """Take in the file of a snapshot. A learner that does not exist is made from it, and serves it at once."""
        admission.check_streams()
        learner_name(name, "name")
        check_note(note, "note")
        offer = Offer(name, _announced(request), _digest(sha256), note, restore)
        parts = aiter(request.stream())

        async def chunks() -> bytes | None:
            async for part in parts:
                if part:  # the last one is empty
                    return part
            return None

        with admission.stream():
            done = await operations.importing.take_in(offer, chunks)
        return models.Imported(
            snapshot=conversion.snapshot(snapshot_message(done.snapshot, name)),
            model_version=done.version,
            created=done.created,
        )

    return [router, taking_in]


def _announced(request: Request) -> int:
    """The size of a body: nothing is taken in that does not say how large it is."""
    size = request.headers.get("content-length", "")
    if not size.isascii() or not size.isdigit() or not int(size[:19]):
        message = "the size of the file is required"
        raise RpcError("FIELD_INVALID", message, fields=("content-length",), field="content-length")
    return int(size[:19])


def _digest(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b"?"
    if len(found) not in (0, 32):
        message = "a SHA-256 is written with 64 hexadecimal digits"
        raise RpcError("FIELD_INVALID", message, fields=("sha256",), field="sha256")
    return found


async def _streamed(admission: Admission, parts: AsyncIterator[SnapshotRow | bytes]) -> AsyncIterator[bytes]:
    with admission.stream():
        async for part in parts:
            assert isinstance(part, bytes)
            yield part
