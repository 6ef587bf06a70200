"""The methods of Admin, one per RPC. The comments in `admin.proto` say what each does and how it fails."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from sharp.v1 import admin_pb2, class_admin_pb2, learner_admin_pb2, parked_pb2, quality_pb2, snapshot_pb2, weights_pb2

from ._answers import (
    DeletedLearner,
    DeletedSnapshot,
    DiscardedEpisode,
    ForgottenClass,
    ImportedSnapshot,
    ImportedWeights,
    LearnerInfo,
    LearnerUpdate,
    MergedClasses,
    ParkedEpisode,
    Quality,
    RenamedClass,
    RestoredSnapshot,
    RetriedEpisode,
    ServerStatus,
    Snapshot,
    UndoneVersion,
)
from ._async_runtime import each_within, sleep
from ._batching import check_learner_name
from ._configs import LabelKind, learner_config
from ._errors import SharpError
from ._labels import Label, encode_label
from ._options import Retry, Timeout
from ._requests import duration, forget_request
from ._snapshot_files import SnapshotReceiver, import_requests, weights_requests
from ._transport import AsyncTransport

IDLE_AFTER = 90.0
"""Seconds without a message after which a watched server counts as dead: it sends one every 30."""

PAGE_SIZE = 1000
"""Items of a list that are asked for at a time: as many as a server gives."""


class AsyncAdminCalls:
    """What an operator does."""

    _transport: AsyncTransport
    _timeout: Timeout
    _retry: Retry

    async def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        raise NotImplementedError

    async def _list(self, method: str, request: Any, field: str, timeout: float | None) -> list[Any]:
        """Collect the items of all pages of a list."""
        items: list[Any] = []
        while True:
            page = await self._call(method, request, timeout)
            items += getattr(page, field)
            if not page.next_page_token:
                return items
            request.page_token = page.next_page_token

    async def create_learner(
        self,
        name: str,
        *,
        preset: str = "",
        overrides: Mapping[str, Any] | None = None,
        input_shape: Sequence[int] = (),
        label_kind: LabelKind | None = None,
        seed: int = 0,
        timeout: float | None = None,
    ) -> LearnerInfo:
        """Create a learner that knows nothing yet; its first batch decides what is left out.

        `overrides` are single settings on top of the preset, as in `{"training.phases": 12}`.
        """
        config = learner_config(preset, overrides, input_shape, label_kind, seed)
        request = learner_admin_pb2.CreateLearnerRequest(name=check_learner_name(name), config=config)
        answer = await self._call("CreateLearner", request, timeout)
        return LearnerInfo.decode(answer.learner)

    async def get_learner(self, name: str, *, timeout: float | None = None) -> LearnerInfo:
        """Get everything about one learner."""
        request = learner_admin_pb2.GetLearnerRequest(name=name)
        answer = await self._call("GetLearner", request, timeout)
        return LearnerInfo.decode(answer.learner)

    async def list_learners(self, *, timeout: float | None = None) -> list[LearnerInfo]:
        """List all learners by name, without their settings, layers and classes."""
        request = learner_admin_pb2.ListLearnersRequest(page_size=PAGE_SIZE)
        return [LearnerInfo.decode(one) for one in await self._list("ListLearners", request, "learners", timeout)]

    async def delete_learner(self, name: str, *, uid: str = "", timeout: float | None = None) -> DeletedLearner:
        """Delete a learner with all its data; with `uid`, only if it is that very one."""
        request = learner_admin_pb2.DeleteLearnerRequest(name=name, uid=uid)
        return DeletedLearner.decode(await self._call("DeleteLearner", request, timeout))

    async def watch_learner(
        self, name: str, *, min_interval: float = 0.0, reconnect: bool = True
    ) -> AsyncIterator[LearnerUpdate]:
        """Yield the status of a learner: at once, and after every change, until the caller stops asking.

        A broken connection is opened again, unless `reconnect` is off. Ends with LearnerNotFoundError when the learner
        is deleted.
        """
        request = learner_admin_pb2.WatchLearnerRequest(name=name, min_interval=duration(min_interval))
        failures = 0
        while True:
            call = self._transport.stream("WatchLearner", request, None)
            try:
                async for message in each_within(call, IDLE_AFTER):
                    failures = 0
                    yield LearnerUpdate.decode(message)
                return
            except SharpError as error:
                failures += 1
                if not reconnect or error.code != "UNAVAILABLE" or failures >= self._retry.attempts:
                    raise
                delay = self._retry.delay(failures, error.retry_delay)
            finally:
                call.cancel()
            await sleep(delay)

    async def forget_class(
        self,
        name: str,
        label: Label,
        *,
        older_snapshots: Literal["list", "delete"] = "list",
        timeout: float | None = None,
    ) -> ForgottenClass:
        """Make a learner forget a class; older snapshots that hold it are listed, or deleted."""
        request = forget_request(name, label, older_snapshots)
        return ForgottenClass.decode(await self._call("ForgetClass", request, timeout))

    async def rename_class(self, name: str, old: Label, new: Label, *, timeout: float | None = None) -> RenamedClass:
        """Give a class another name, under a new version; what waits to be learned follows."""
        request = class_admin_pb2.RenameClassRequest(learner=name, label=encode_label(old), new_label=encode_label(new))
        return RenamedClass.decode(await self._call("RenameClass", request, timeout))

    async def merge_classes(
        self, name: str, source: Label, target: Label, *, timeout: float | None = None
    ) -> MergedClasses:
        """Make one class of two, under a new version: the source ends, the target takes it in."""
        request = class_admin_pb2.MergeClassesRequest(
            learner=name, source=encode_label(source), target=encode_label(target)
        )
        return MergedClasses.decode(await self._call("MergeClasses", request, timeout))

    async def undo_version(
        self, name: str, *, model_version: int = 0, preview: bool = False, timeout: float | None = None
    ) -> UndoneVersion:
        """Go back to the version before the one that serves, under a new number.

        `model_version` undoes only that one, if it serves; `preview` only says what would be undone.
        """
        request = class_admin_pb2.UndoVersionRequest(learner=name, model_version=model_version, preview=preview)
        return UndoneVersion.decode(await self._call("UndoVersion", request, timeout))

    async def list_quality(self, name: str, *, timeout: float | None = None) -> list[Quality]:
        """List how good the newest versions of a learner are, newest first, with all their classes."""
        request = quality_pb2.ListQualityRequest(learner=name, page_size=PAGE_SIZE)
        return [Quality.decode(one) for one in await self._list("ListQuality", request, "qualities", timeout)]

    async def create_snapshot(self, name: str, *, note: str = "", timeout: float | None = None) -> Snapshot:
        """Save the version that serves, and keep it until it is deleted."""
        request = snapshot_pb2.CreateSnapshotRequest(learner=name, note=note)
        answer = await self._call("CreateSnapshot", request, timeout)
        return Snapshot.decode(answer.snapshot)

    async def list_snapshots(self, name: str, *, timeout: float | None = None) -> list[Snapshot]:
        """List all snapshots of a learner, newest first."""
        request = snapshot_pb2.ListSnapshotsRequest(learner=name, page_size=PAGE_SIZE)
        return [Snapshot.decode(one) for one in await self._list("ListSnapshots", request, "snapshots", timeout)]

    async def restore_snapshot(
        self, name: str, snapshot_id: str, *, with_forgotten: bool = False, timeout: float | None = None
    ) -> RestoredSnapshot:
        """Return a learner to a snapshot, except for classes that were forgotten since.

        `with_forgotten` brings those back too.
        """
        request = snapshot_pb2.RestoreSnapshotRequest(
            learner=name, snapshot_id=snapshot_id, with_forgotten=with_forgotten
        )
        return RestoredSnapshot.decode(await self._call("RestoreSnapshot", request, timeout))

    async def delete_snapshot(self, name: str, snapshot_id: str, *, timeout: float | None = None) -> DeletedSnapshot:
        """Delete a snapshot."""
        request = snapshot_pb2.DeleteSnapshotRequest(learner=name, snapshot_id=snapshot_id)
        return DeletedSnapshot.decode(await self._call("DeleteSnapshot", request, timeout))

    async def export_snapshot(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        snapshot_id: str = "",
        overwrite: bool = False,
        timeout: float | None = None,
    ) -> Snapshot:
        """Write a snapshot (the newest by default) to a file: whole and with the right SHA-256, or not at all.

        A file that is there already stays, and FileExistsError is raised, unless `overwrite` is set.
        """
        request = snapshot_pb2.ExportSnapshotRequest(learner=name, snapshot_id=snapshot_id)
        with SnapshotReceiver(path, overwrite=overwrite) as receiver:
            async for message in self._transport.stream("ExportSnapshot", request, timeout or self._timeout.transfer):
                receiver.receive(message)
            return Snapshot.decode(receiver.finish())

    async def import_snapshot(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        restore: bool = False,
        note: str = "",
        timeout: float | None = None,
    ) -> ImportedSnapshot:
        """Give a learner the snapshot in a file, and with `restore` return it to that snapshot.

        If there is no learner of that name, it is created from the snapshot.
        """
        messages = import_requests(name, path, restore=restore, note=note)

        async def requests() -> AsyncIterator[snapshot_pb2.ImportSnapshotRequest]:
            for message in messages:
                yield message

        answer = await self._transport.client_stream("ImportSnapshot", requests(), timeout or self._timeout.transfer)
        return ImportedSnapshot.decode(answer)

    async def import_weights(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> ImportedWeights:
        """Bring a file of weights (.safetensors, or plain tensors as torch.save writes them) to the server.

        The name in the answer is what `weights` in a learner's settings takes. A file that the server has is not sent.
        """
        messages = weights_requests(path)

        async def requests() -> AsyncIterator[weights_pb2.ImportWeightsRequest]:
            for message in messages:
                yield message

        answer = await self._transport.client_stream("ImportWeights", requests(), timeout or self._timeout.transfer)
        return ImportedWeights.decode(answer)

    async def list_parked_episodes(self, name: str, *, timeout: float | None = None) -> list[ParkedEpisode]:
        """List all episodes of a learner that could not be learned, by number."""
        request = parked_pb2.ListParkedEpisodesRequest(learner=name, page_size=PAGE_SIZE)
        return [
            ParkedEpisode.decode(one) for one in await self._list("ListParkedEpisodes", request, "episodes", timeout)
        ]

    async def retry_parked_episode(self, name: str, episode: int, *, timeout: float | None = None) -> RetriedEpisode:
        """Put a parked episode back in the queue."""
        request = parked_pb2.RetryParkedEpisodeRequest(learner=name, episode=episode)
        return RetriedEpisode.decode(await self._call("RetryParkedEpisode", request, timeout))

    async def discard_parked_episode(
        self, name: str, episode: int, *, timeout: float | None = None
    ) -> DiscardedEpisode:
        """Give up a parked episode and delete its examples."""
        request = parked_pb2.DiscardParkedEpisodeRequest(learner=name, episode=episode)
        return DiscardedEpisode.decode(await self._call("DiscardParkedEpisode", request, timeout))

    async def get_server_status(self, *, timeout: float | None = None) -> ServerStatus:
        """Get the state of the server: trainer, teacher, limits, disk, damage."""
        return ServerStatus.decode(await self._call("GetServerStatus", admin_pb2.GetServerStatusRequest(), timeout))
