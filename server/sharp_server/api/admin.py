"""The Admin service: learners, their classes, versions and snapshots, forgetting, parked episodes, the server's status.

Whatever changes something is carried through to its end even if the caller leaves meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sharp.v1 import admin_pb2, admin_pb2_grpc, learner_pb2, quality_pb2, weights_pb2
from sharp.v1 import class_admin_pb2 as classes_pb
from sharp.v1 import learner_admin_pb2 as pb
from sharp.v1 import parked_pb2 as parked_pb
from sharp.v1 import snapshot_pb2 as snap
from sharp_server.api.decode import label_of
from sharp_server.api.incoming_file import incoming_file
from sharp_server.api.messages import (
    learner_message,
    parked_episode_message,
    snapshot_message,
    status_message,
    version_cause,
)
from sharp_server.api.paging import page
from sharp_server.api.server_status import ServerStatus
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.forgetting import Forgetting
from sharp_server.learners.importing import Importing, Offer
from sharp_server.learners.lifecycle import Lifecycle
from sharp_server.learners.mailbox import Mailbox
from sharp_server.learners.messages import labels_message, timestamp
from sharp_server.learners.parked_episodes import ParkedEpisodes
from sharp_server.learners.quality_messages import quality_message
from sharp_server.learners.registry import Registry
from sharp_server.learners.relabelling import ClassRelabelling
from sharp_server.learners.restoring import Restoring
from sharp_server.learners.snapshots import Snapshots
from sharp_server.learners.versions import Versions
from sharp_server.learners.weights import Weights
from sharp_server.runtime.server_state import ServerState

_MOST_EVENTS = 1000
_QUIET_SECONDS = 30.0


LearnersElsewhere = Callable[[Mapping[str, str | bytes]], Awaitable[Mapping[str, learner_pb2.Learner]]]
"""In a cluster: the learners of other servers by name, for a call with these metadata."""


@dataclass(frozen=True)
class Operations:
    """What an operator may do."""

    lifecycle: Lifecycle
    forgetting: Forgetting
    relabelling: ClassRelabelling
    restoring: Restoring
    versions: Versions
    snapshots: Snapshots
    importing: Importing
    weights: Weights
    parked: ParkedEpisodes


class AdminService(admin_pb2_grpc.AdminServicer):
    """Serves `sharp.v1.Admin`."""

    def __init__(
        self, limits: LimitsConfig, state: ServerState, registry: Registry, operations: Operations, status: ServerStatus
    ) -> None:
        self._limits, self._state, self._registry = limits, state, registry
        self._do, self._server_status = operations, status
        self._elsewhere: LearnersElsewhere | None = None

    def list_also(self, elsewhere: LearnersElsewhere) -> None:
        """In a cluster: list the learners of other servers too."""
        self._elsewhere = elsewhere

    # ---- learners ---------------------------------------------------------------------------------------------------

    async def CreateLearner(self, request: pb.CreateLearnerRequest, context: Any) -> pb.CreateLearnerResponse:  # noqa: N802
        """Make a learner that knows nothing yet."""
        served = await self._state.finish(self._do.lifecycle.create(request.name, request.config))
        return pb.CreateLearnerResponse(learner=learner_message(served, self._limits.unlearned_bytes))

    async def GetLearner(self, request: pb.GetLearnerRequest, context: Any) -> pb.GetLearnerResponse:  # noqa: N802
        """Describe one learner."""
        served = self._registry.get(request.name)
        return pb.GetLearnerResponse(learner=learner_message(served, self._limits.unlearned_bytes))

    async def ListLearners(self, request: pb.ListLearnersRequest, context: Any) -> pb.ListLearnersResponse:  # noqa: N802
        """List the learners by name."""
        elsewhere = {} if self._elsewhere is None else await self._elsewhere(dict(context.invocation_metadata() or ()))
        learners, token = list_learners(
            self._registry, elsewhere, self._limits.unlearned_bytes, request.page_size, request.page_token
        )
        return pb.ListLearnersResponse(learners=learners, next_page_token=token)

    async def DeleteLearner(self, request: pb.DeleteLearnerRequest, context: Any) -> pb.DeleteLearnerResponse:  # noqa: N802
        """Delete a learner with all it has."""
        served = self._registry.get(request.name)
        if request.uid and request.uid != served.uid:
            raise RpcError("LEARNER_NOT_FOUND", "the learner of that name has another uid", learner=request.name)
        unlearned, snapshots = await self._state.finish(self._do.lifecycle.delete(served))
        return pb.DeleteLearnerResponse(unlearned_examples=unlearned, snapshots=snapshots)

    async def WatchLearner(  # noqa: N802
        self, request: pb.WatchLearnerRequest, context: Any
    ) -> AsyncIterator[pb.WatchLearnerResponse]:
        """Stream the status of a learner, at once and after every change."""
        served = self._registry.get(request.name)
        interval = request.min_interval.seconds + request.min_interval.nanos / 1e9
        if interval < 0:
            raise RpcError("FIELD_INVALID", "the interval is negative", fields=("min_interval",), field="min_interval")
        interval = max(0.1, interval or 1.0)
        mailbox = Mailbox(_MOST_EVENTS)
        with served.watch(mailbox):
            while True:
                happened = mailbox.take()
                if served.deleted:
                    raise served.farewell
                if self._state.stopping:
                    raise RpcError("SERVER_NOT_READY", "the server is stopping")
                status = status_message(served, self._limits.unlearned_bytes)
                yield pb.WatchLearnerResponse(status=status, events=happened)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._state.wait_until_stopping(), interval)
                with contextlib.suppress(TimeoutError):  # nothing happened: say so
                    await asyncio.wait_for(mailbox.wait(), max(0.0, _QUIET_SECONDS - interval))

    # ---- forgetting -------------------------------------------------------------------------------------------------

    async def ForgetClass(self, request: pb.ForgetClassRequest, context: Any) -> pb.ForgetClassResponse:  # noqa: N802
        """Make a learner forget a class."""
        served = self._registry.get(request.learner)
        if not 0 <= request.older_snapshots <= 2:
            field = "older_snapshots"
            raise RpcError("FIELD_INVALID", "unknown choice", fields=(field,), field=field)
        label = label_of(request.label, served.label_kind)
        delete = request.older_snapshots == pb.OLDER_SNAPSHOTS_DELETE
        done = await self._state.finish(self._do.forgetting.forget(served, label, delete))
        return pb.ForgetClassResponse(
            model_version=done.version,
            ltm_entries=done.ltm_entries,
            stm_entries=done.stm_entries,
            journal_examples=done.journal.examples,
            discarded_episodes=[episode.number for episode in done.journal.discarded],
            snapshots_holding=[snapshot_message(row, served.name) for row in done.holding],
            snapshots_deleted=[snapshot_message(row, served.name) for row in done.deleted],
        )

    # ---- classes and versions ---------------------------------------------------------------------------------------

    async def RenameClass(self, request: classes_pb.RenameClassRequest, context: Any) -> classes_pb.RenameClassResponse:  # noqa: N802
        """Give a class another name."""
        served = self._registry.get(request.learner)
        old = label_of(request.label, served.label_kind)
        new = label_of(request.new_label, served.label_kind, "new_label")
        done = await self._state.finish(self._do.relabelling.rename(served, old, new))
        return classes_pb.RenameClassResponse(
            model_version=done.version,
            journal_examples=done.journal_examples,
            snapshots_holding=[snapshot_message(row, served.name) for row in done.holding],
        )

    async def MergeClasses(  # noqa: N802
        self, request: classes_pb.MergeClassesRequest, context: Any
    ) -> classes_pb.MergeClassesResponse:
        """Make one class of two."""
        served = self._registry.get(request.learner)
        source = label_of(request.source, served.label_kind, "source")
        target = label_of(request.target, served.label_kind, "target")
        done = await self._state.finish(self._do.relabelling.merge(served, source, target))
        return classes_pb.MergeClassesResponse(
            model_version=done.version,
            examples=done.examples,
            journal_examples=done.journal_examples,
            snapshots_holding=[snapshot_message(row, served.name) for row in done.holding],
        )

    async def UndoVersion(self, request: classes_pb.UndoVersionRequest, context: Any) -> classes_pb.UndoVersionResponse:  # noqa: N802
        """Go back to the version before."""
        served = self._registry.get(request.learner)
        done = await self._state.finish(self._do.versions.undo(served, request.model_version, request.preview))
        return classes_pb.UndoVersionResponse(
            model_version=done.serving,
            undone_model_version=done.undone.version,
            restored_model_version=done.restored.version,
            restored_create_time=timestamp(done.restored.created),
            cause=version_cause(done.undone.cause),
            episodes_undone=done.episodes_undone,
            episodes_waiting=done.episodes_waiting,
            classes_forgotten=labels_message(done.forgotten),
        )

    async def ListQuality(  # noqa: N802
        self, request: quality_pb2.ListQualityRequest, context: Any
    ) -> quality_pb2.ListQualityResponse:
        """List how good the newest versions are, newest first."""
        served = self._registry.get(request.learner)
        rows, kind = await self._do.versions.qualities(served), f"quality {served.uid}"
        chosen, token = page(
            rows, lambda row: row.version, kind, request.page_size, request.page_token, descending=True
        )
        return quality_pb2.ListQualityResponse(
            qualities=[quality_message(measured, every_class=True) for measured in chosen], next_page_token=token
        )

    # ---- snapshots --------------------------------------------------------------------------------------------------

    async def CreateSnapshot(self, request: snap.CreateSnapshotRequest, context: Any) -> snap.CreateSnapshotResponse:  # noqa: N802
        """Save the version that serves."""
        served = self._registry.get(request.learner)
        row = await self._state.finish(self._do.snapshots.create(served, request.note))
        return snap.CreateSnapshotResponse(snapshot=snapshot_message(row, served.name))

    async def ListSnapshots(self, request: snap.ListSnapshotsRequest, context: Any) -> snap.ListSnapshotsResponse:  # noqa: N802
        """List the snapshots of a learner, newest first."""
        served = self._registry.get(request.learner)
        rows = await self._do.snapshots.list(served)
        kind = f"snapshots {served.uid}"
        chosen, token = page(rows, lambda row: row.id, kind, request.page_size, request.page_token, descending=True)
        return snap.ListSnapshotsResponse(
            snapshots=[snapshot_message(row, served.name) for row in chosen], next_page_token=token
        )

    async def RestoreSnapshot(  # noqa: N802
        self, request: snap.RestoreSnapshotRequest, context: Any
    ) -> snap.RestoreSnapshotResponse:
        """Make a learner what it was when a snapshot was taken."""
        served, name = self._registry.get(request.learner), _required(request.snapshot_id)
        done = await self._state.finish(self._do.restoring.restore(served, name, request.with_forgotten))
        return snap.RestoreSnapshotResponse(
            model_version=done.version,
            previous_model_version=done.previous,
            episodes_undone=done.undone,
            classes_forgotten=labels_message(done.forgotten),
        )

    async def DeleteSnapshot(self, request: snap.DeleteSnapshotRequest, context: Any) -> snap.DeleteSnapshotResponse:  # noqa: N802
        """Delete a snapshot from the disk."""
        served = self._registry.get(request.learner)
        size = await self._state.finish(self._do.snapshots.delete(served, _required(request.snapshot_id)))
        return snap.DeleteSnapshotResponse(size_bytes=size)

    async def ExportSnapshot(  # noqa: N802
        self, request: snap.ExportSnapshotRequest, context: Any
    ) -> AsyncIterator[snap.ExportSnapshotResponse]:
        """Stream the file of a snapshot."""
        served = self._registry.get(request.learner)
        async for part in self._do.snapshots.export(served, request.snapshot_id):
            if isinstance(part, bytes):
                yield snap.ExportSnapshotResponse(chunk=part)
            else:
                yield snap.ExportSnapshotResponse(snapshot=snapshot_message(part, served.name))

    async def ImportSnapshot(self, request_iterator: Any, context: Any) -> snap.ImportSnapshotResponse:  # noqa: N802
        """Take in the file of a snapshot."""
        header, chunks = await incoming_file(context, self._state)
        offer = Offer(header.learner, header.size_bytes, header.sha256, header.note, header.restore)
        done = await self._do.importing.take_in(offer, chunks)
        return snap.ImportSnapshotResponse(
            snapshot=snapshot_message(done.snapshot, done.served.name), model_version=done.version, created=done.created
        )

    async def ImportWeights(self, request_iterator: Any, context: Any) -> weights_pb2.ImportWeightsResponse:  # noqa: N802
        """Take in a file of weights."""
        header, chunks = await incoming_file(context, self._state)
        done = await self._do.weights.take_in(header.size_bytes, header.sha256, chunks)
        return weights_pb2.ImportWeightsResponse(name=done.name, stored=done.stored)

    # ---- parked episodes --------------------------------------------------------------------------------------------

    async def ListParkedEpisodes(  # noqa: N802
        self, request: parked_pb.ListParkedEpisodesRequest, context: Any
    ) -> parked_pb.ListParkedEpisodesResponse:
        """List the episodes that could not be learned, by number."""
        served = self._registry.get(request.learner)
        kind = f"parked {served.uid}"
        chosen, token = page(served.backlog.parked(), lambda e: e.number, kind, request.page_size, request.page_token)
        return parked_pb.ListParkedEpisodesResponse(
            episodes=[parked_episode_message(episode) for episode in chosen],
            next_page_token=token,
        )

    async def RetryParkedEpisode(  # noqa: N802
        self, request: parked_pb.RetryParkedEpisodeRequest, context: Any
    ) -> parked_pb.RetryParkedEpisodeResponse:
        """Put a parked episode back in the queue."""
        served = self._registry.get(request.learner)
        episode = await self._state.finish(self._do.parked.retry(served, request.episode))
        return parked_pb.RetryParkedEpisodeResponse(episodes_ahead=served.backlog.ahead_of(episode))

    async def DiscardParkedEpisode(  # noqa: N802
        self, request: parked_pb.DiscardParkedEpisodeRequest, context: Any
    ) -> parked_pb.DiscardParkedEpisodeResponse:
        """Give up a parked episode for good."""
        served = self._registry.get(request.learner)
        episode = await self._state.finish(self._do.parked.discard(served, request.episode))
        return parked_pb.DiscardParkedEpisodeResponse(examples=episode.examples)

    # ---- the server -------------------------------------------------------------------------------------------------

    async def GetServerStatus(  # noqa: N802
        self, request: admin_pb2.GetServerStatusRequest, context: Any
    ) -> admin_pb2.GetServerStatusResponse:
        """Describe the server."""
        return await self._server_status.message()


def list_learners(
    registry: Registry, elsewhere: Mapping[str, learner_pb2.Learner], limit_bytes: int, size: int, token: str
) -> tuple[list[learner_pb2.Learner], str]:
    """One page of the learners by name, here and elsewhere, and the token of the next."""
    names = sorted({served.name for served in registry} | elsewhere.keys())
    chosen, next_token = page(names, lambda name: name, "learners", size, token)
    here = ((name, registry.find(name)) for name in chosen)
    return [
        elsewhere[name] if served is None else learner_message(served, limit_bytes, whole=False)
        for name, served in here
    ], next_token


def _required(snapshot_id: str) -> str:
    if not snapshot_id:
        field = "snapshot_id"
        raise RpcError("FIELD_INVALID", "the id of the snapshot is required", fields=(field,), field=field)
    return snapshot_id
