"""The Admin service: learners, snapshots, forgetting, parked episodes, the server's status.

Whatever changes something is carried through to its end even if the caller leaves meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from sharp.v1 import admin_pb2, admin_pb2_grpc, learner_pb2, server_pb2
from sharp.v1 import learner_admin_pb2 as pb
from sharp.v1 import parked_pb2 as parked_pb
from sharp.v1 import snapshot_pb2 as snap
from sharp_server.api.decode.inputs import label_of
from sharp_server.api.paging import page
from sharp_server.context import ServerContext
from sharp_server.errors import RpcError
from sharp_server.learners import events
from sharp_server.learners.events import Mailbox, duration, timestamp
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import KIND_MESSAGES, shown
from sharp_server.learners.snapshots import Snapshots, snapshot_message
from sharp_server.prediction.summary import class_messages, labels_message
from sharp_server.runtime import version as software
from sharp_server.runtime.metrics import memory_of
from sharp_server.storage.sqlite import episodes as ledger_episodes
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite.streams import EpisodeRow

_MOST_EVENTS = 1000
_QUIET_SECONDS = 30.0


class AdminService(admin_pb2_grpc.AdminServicer):
    """Serves `sharp.v1.Admin`."""

    def __init__(self, front: ServerContext) -> None:
        self._front = front
        self._snapshots = Snapshots(front)

    # ---- learners ---------------------------------------------------------------------------------------------------

    async def CreateLearner(self, request: pb.CreateLearnerRequest, context: Any) -> pb.CreateLearnerResponse:  # noqa: N802
        """Make a learner that knows nothing yet."""
        front = self._front
        served = await front.finish(front.creation.create(request.name, request.config))
        return pb.CreateLearnerResponse(learner=self._learner(served))

    async def GetLearner(self, request: pb.GetLearnerRequest, context: Any) -> pb.GetLearnerResponse:  # noqa: N802
        """Tell everything about one learner."""
        return pb.GetLearnerResponse(learner=self._learner(self._front.registry.get(request.name)))

    async def ListLearners(self, request: pb.ListLearnersRequest, context: Any) -> pb.ListLearnersResponse:  # noqa: N802
        """List the learners by name."""
        learners = sorted(self._front.registry, key=lambda served: served.name)
        chosen, token = page(learners, lambda served: served.name, "learners", request.page_size, request.page_token)
        return pb.ListLearnersResponse(
            learners=[self._learner(served, whole=False) for served in chosen], next_page_token=token
        )

    async def DeleteLearner(self, request: pb.DeleteLearnerRequest, context: Any) -> pb.DeleteLearnerResponse:  # noqa: N802
        """Delete a learner with all it has."""
        front = self._front
        served = front.registry.get(request.name)
        if request.uid and request.uid != served.uid:
            raise RpcError("LEARNER_NOT_FOUND", "the learner of that name has another uid", learner=request.name)
        unlearned, snapshots = await front.finish(front.changes.delete(served))
        return pb.DeleteLearnerResponse(unlearned_examples=unlearned, snapshots=snapshots)

    async def WatchLearner(  # noqa: N802
        self, request: pb.WatchLearnerRequest, context: Any
    ) -> AsyncIterator[pb.WatchLearnerResponse]:
        """Stream the status of a learner, at once and after every change."""
        served = self._front.registry.get(request.name)
        interval = request.min_interval.seconds + request.min_interval.nanos / 1e9
        if interval < 0:
            raise RpcError("FIELD_INVALID", "the interval is negative", fields=("min_interval",), field="min_interval")
        interval = max(0.1, interval or 1.0)
        mailbox = Mailbox(_MOST_EVENTS)
        served.watchers.add(mailbox)
        try:
            while True:
                happened = mailbox.take()
                if served.deleted:
                    raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted", learner=request.name)
                if self._front.stopping.is_set():
                    raise RpcError("SERVER_NOT_READY", "the server is stopping")
                yield pb.WatchLearnerResponse(status=self._status(served), events=happened)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._front.stopping.wait(), interval)
                with contextlib.suppress(TimeoutError):  # nothing happened: say so
                    await asyncio.wait_for(mailbox.wait(), max(0.0, _QUIET_SECONDS - interval))
        finally:
            served.watchers.discard(mailbox)

    def _status(self, served: ServedLearner, layers: bool = True) -> learner_pb2.LearnerStatus:
        return served.status(self._front.config.limits.unlearned_bytes, layers)

    def _learner(self, served: ServedLearner, whole: bool = True) -> learner_pb2.Learner:
        figures = served.model.figures
        learner = learner_pb2.Learner(
            name=served.name,
            uid=served.uid,
            config=served.given,
            input_shape=served.input_shape or (),
            label_kind=KIND_MESSAGES[served.label_kind],
            create_time=timestamp(served.created),
            status=self._status(served, layers=whole),
            architecture=figures.get("architecture", "") or _architecture(served),
        )
        if whole:
            learner.settings.update(shown(served.config))
            learner.classes.extend(class_messages(figures.get("classes", ())))
        return learner

    # ---- forgetting -------------------------------------------------------------------------------------------------

    async def ForgetClass(self, request: pb.ForgetClassRequest, context: Any) -> pb.ForgetClassResponse:  # noqa: N802
        """Make a learner forget a class."""
        front = self._front
        served = front.registry.get(request.learner)
        if not 0 <= request.older_snapshots <= 2:
            field = "older_snapshots"
            raise RpcError("FIELD_INVALID", "unknown choice", fields=(field,), field=field)
        label = label_of(request.label, served.label_kind)
        delete = request.older_snapshots == pb.OLDER_SNAPSHOTS_DELETE
        done = await front.finish(front.changes.forget(served, label, delete))
        return pb.ForgetClassResponse(
            model_version=done.version,
            ltm_entries=done.ltm_entries,
            stm_entries=done.stm_entries,
            journal_examples=done.journal.examples,
            discarded_episodes=[episode.number for episode in done.journal.discarded],
            snapshots_holding=[snapshot_message(row, served.name) for row in done.holding],
            snapshots_deleted=[snapshot_message(row, served.name) for row in done.deleted],
        )

    # ---- snapshots --------------------------------------------------------------------------------------------------

    async def CreateSnapshot(self, request: snap.CreateSnapshotRequest, context: Any) -> snap.CreateSnapshotResponse:  # noqa: N802
        """Save the version that serves."""
        served = self._front.registry.get(request.learner)
        row = await self._front.finish(self._snapshots.create(served, request.note))
        return snap.CreateSnapshotResponse(snapshot=snapshot_message(row, served.name))

    async def ListSnapshots(self, request: snap.ListSnapshotsRequest, context: Any) -> snap.ListSnapshotsResponse:  # noqa: N802
        """List the snapshots of a learner, newest first."""
        served = self._front.registry.get(request.learner)
        rows = await self._front.journal.read(ledger_learners.snapshots, served.id)
        kind = f"snapshots {served.uid}"
        chosen, token = page(rows, lambda row: row.id, kind, request.page_size, request.page_token, descending=True)
        return snap.ListSnapshotsResponse(
            snapshots=[snapshot_message(row, served.name) for row in chosen], next_page_token=token
        )

    async def RestoreSnapshot(  # noqa: N802
        self, request: snap.RestoreSnapshotRequest, context: Any
    ) -> snap.RestoreSnapshotResponse:
        """Make a learner what it was when a snapshot was taken."""
        front = self._front
        served = front.registry.get(request.learner)
        done = await front.finish(front.changes.restore(served, _required(request.snapshot_id), request.with_forgotten))
        return snap.RestoreSnapshotResponse(
            model_version=done.version,
            previous_model_version=done.previous,
            episodes_undone=done.undone,
            classes_forgotten=labels_message(done.forgotten),
        )

    async def DeleteSnapshot(self, request: snap.DeleteSnapshotRequest, context: Any) -> snap.DeleteSnapshotResponse:  # noqa: N802
        """Delete a snapshot from the disk."""
        served = self._front.registry.get(request.learner)
        size = await self._front.finish(self._snapshots.delete(served, _required(request.snapshot_id)))
        return snap.DeleteSnapshotResponse(size_bytes=size)

    async def ExportSnapshot(  # noqa: N802
        self, request: snap.ExportSnapshotRequest, context: Any
    ) -> AsyncIterator[snap.ExportSnapshotResponse]:
        """Stream the file of a snapshot."""
        served = self._front.registry.get(request.learner)
        async for part in self._snapshots.export(served, request.snapshot_id):
            if isinstance(part, bytes):
                yield snap.ExportSnapshotResponse(chunk=part)
            else:
                yield snap.ExportSnapshotResponse(snapshot=snapshot_message(part, served.name))

    async def ImportSnapshot(self, request_iterator: Any, context: Any) -> snap.ImportSnapshotResponse:  # noqa: N802
        """Take in the file of a snapshot."""
        first = await self._front.unless_stopping(context.read())
        kind = None if first is grpc.aio.EOF else first.WhichOneof("part")
        if kind != "header":
            message = "the first message must be the header"
            raise RpcError("UNEXPECTED_MESSAGE", message, expected="header", found=kind or "nothing")

        async def chunks() -> bytes | None:
            message = await context.read()
            if message is grpc.aio.EOF:
                return None
            found = message.WhichOneof("part")
            if found == "header":
                text = "a header can only be the first message"
                raise RpcError("UNEXPECTED_MESSAGE", text, expected="chunk", found="header")
            if found is None or not message.chunk:
                raise RpcError("FIELD_INVALID", "an empty part", fields=("chunk",), field="chunk")
            chunk: bytes = message.chunk
            return chunk

        return await self._snapshots.take_in(first.header, chunks)

    # ---- parked episodes --------------------------------------------------------------------------------------------

    async def ListParkedEpisodes(  # noqa: N802
        self, request: parked_pb.ListParkedEpisodesRequest, context: Any
    ) -> parked_pb.ListParkedEpisodesResponse:
        """List the episodes that could not be learned, by number."""
        served = self._front.registry.get(request.learner)
        kind = f"parked {served.uid}"
        chosen, token = page(served.parked(), lambda e: e.number, kind, request.page_size, request.page_token)
        return parked_pb.ListParkedEpisodesResponse(
            episodes=[
                parked_pb.ParkedEpisode(
                    episode=episode.number,
                    stream_id=episode.stream_name,
                    parked=events.parked_message(episode),
                    park_time=timestamp(episode.settled),
                    examples=episode.examples,
                    size_bytes=episode.bytes,
                    classes=labels_message(events.labels_of(episode.classes)),
                )
                for episode in chosen
            ],
            next_page_token=token,
        )

    async def RetryParkedEpisode(  # noqa: N802
        self, request: parked_pb.RetryParkedEpisodeRequest, context: Any
    ) -> parked_pb.RetryParkedEpisodeResponse:
        """Put a parked episode back in the queue."""
        served = self._front.registry.get(request.learner)

        async def retry() -> EpisodeRow:
            episode = await self._front.journal.write(ledger_episodes.retry, served.id, request.episode)
            served.episodes[episode.number] = episode
            self._front.scheduler.wake()
            served.notify()
            return episode

        episode = await self._front.finish(retry())
        return parked_pb.RetryParkedEpisodeResponse(episodes_ahead=served.ahead_of(episode))

    async def DiscardParkedEpisode(  # noqa: N802
        self, request: parked_pb.DiscardParkedEpisodeRequest, context: Any
    ) -> parked_pb.DiscardParkedEpisodeResponse:
        """Give up a parked episode for good."""
        served = self._front.registry.get(request.learner)

        async def discard() -> int:
            episode = await self._front.journal.write(ledger_episodes.discard, served.id, request.episode)
            await self._front.journal.erase()
            served.episodes.pop(episode.number, None)
            served.free(episode.bytes)
            self._front.metrics.discarded.inc()
            served.emit(events.discarded(episode, "operator"), episode.stream)
            served.notify()
            return episode.examples

        return parked_pb.DiscardParkedEpisodeResponse(examples=await self._front.finish(discard()))

    # ---- the server -------------------------------------------------------------------------------------------------

    async def GetServerStatus(  # noqa: N802
        self, request: admin_pb2.GetServerStatusRequest, context: Any
    ) -> admin_pb2.GetServerStatusResponse:
        """Tell how the server is."""
        front, limits = self._front, self._front.config.limits
        taken, free = await asyncio.get_running_loop().run_in_executor(front.threads, front.folder.usage)
        damages: list[Any] = []
        if front.state != server_pb2.SERVER_STATE_STARTING:
            damages = await front.journal.read(ledger_learners.damages)
        learner, episode = front.scheduler.current
        return admin_pb2.GetServerStatusResponse(
            version=software.version(),
            start_time=timestamp(front.started),
            state=front.state,
            learners=len(front.registry),
            trainer=server_pb2.TrainerStatus(
                running=front.scheduler.running,
                restarts=front.scheduler.restarts,
                learner=learner,
                episode=episode,
                memory_bytes=memory_of(str(front.scheduler.pid)) if front.scheduler.pid else 0,
                threads=front.config.trainer.threads,
                since=duration(max(0.0, time.time() - front.scheduler.since)),
            ),
            limits=server_pb2.Limits(
                message_bytes=limits.message_bytes,
                batch_examples=limits.batch_examples,
                unlearned_bytes=limits.unlearned_bytes,
                learners=limits.learners,
                classes=limits.classes,
                streams=limits.streams,
                prediction_queue=front.config.batching.queue_examples,
                top_k=limits.top_k,
                nearest_memories=limits.nearest_memories,
                image_pixels=limits.image_pixels,
                snapshot_bytes=limits.snapshot_bytes,
                automatic_snapshots=front.config.data.automatic_snapshots,
                manual_snapshots=limits.manual_snapshots,
            ),
            data_bytes=taken,
            free_bytes=free,
            corruption_events=[
                server_pb2.CorruptionEvent(
                    time=timestamp(when),
                    learner=name,
                    snapshot_id=snapshot,
                    lost_model_version=lost,
                    serving_model_version=serving,
                    detail=detail,
                )
                for when, name, snapshot, lost, serving, detail in damages
            ],
            device=_device(front.config.predictor.device),
        )


def _required(snapshot_id: str) -> str:
    if not snapshot_id:
        field = "snapshot_id"
        raise RpcError("FIELD_INVALID", "the id of the snapshot is required", fields=(field,), field=field)
    return snapshot_id


def _architecture(served: ServedLearner) -> str:
    """The architecture in one line, before anything was learned with it."""
    from sharp_engine import ConfigError
    from sharp_engine.network.architecture import resolve_architecture

    if served.input_shape is None:
        return ""
    try:
        return resolve_architecture(served.config.architecture, served.input_shape).describe()
    except ConfigError:
        return ""


def _device(name: str) -> str:
    from sharp_engine.device import resolve_device

    return str(resolve_device(name))
