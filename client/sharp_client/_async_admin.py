"""The methods of Admin, one per RPC, for asyncio. The comments in `admin.proto` say what each does and how it fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from sharp.v1 import (
    admin_pb2,
    learner_admin_pb2,
    learner_pb2,
    parked_pb2,
    snapshot_pb2,
)

from ._batching import check_learner_name
from ._errors import DeadlineError, SharpError
from ._labels import Label, encode_label
from ._options import Retry, Timeout
from ._requests import LabelKind, duration, learner_config
from ._snapshot_files import SnapshotReceiver, import_requests
from ._transport import AsyncTransport

IDLE_AFTER = 90.0
"""Seconds without a message after which a watched server is taken for dead: it sends one every 30."""


class AsyncAdminCalls:
    """What an operator does, for asyncio."""

    _transport: AsyncTransport
    _timeout: Timeout
    _retry: Retry

    async def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        raise NotImplementedError

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
    ) -> learner_pb2.Learner:
        """Make a learner that knows nothing yet; what is left out is settled by its first batch.

        `overrides` are single settings on top of the preset, as in `{"training.phases": 12}`.
        """
        config = learner_config(preset, overrides, input_shape, label_kind, seed)
        request = learner_admin_pb2.CreateLearnerRequest(name=check_learner_name(name), config=config)
        created: learner_admin_pb2.CreateLearnerResponse = await self._call("CreateLearner", request, timeout)
        return created.learner

    async def get_learner(self, name: str, *, timeout: float | None = None) -> learner_pb2.Learner:
        """Tell everything about one learner."""
        request = learner_admin_pb2.GetLearnerRequest(name=name)
        found: learner_admin_pb2.GetLearnerResponse = await self._call("GetLearner", request, timeout)
        return found.learner

    async def list_learners(self, *, timeout: float | None = None) -> list[learner_pb2.Learner]:
        """List all learners by name, without their settings, layers and classes."""
        learners: list[learner_pb2.Learner] = []
        request = learner_admin_pb2.ListLearnersRequest(page_size=1000)
        while True:
            page: learner_admin_pb2.ListLearnersResponse = await self._call("ListLearners", request, timeout)
            learners += page.learners
            if not page.next_page_token:
                return learners
            request.page_token = page.next_page_token

    async def delete_learner(
        self, name: str, *, uid: str = "", timeout: float | None = None
    ) -> learner_admin_pb2.DeleteLearnerResponse:
        """Delete a learner with all it has; with `uid`, only if it is that very one."""
        request = learner_admin_pb2.DeleteLearnerRequest(name=name, uid=uid)
        deleted: learner_admin_pb2.DeleteLearnerResponse = await self._call("DeleteLearner", request, timeout)
        return deleted

    async def watch_learner(
        self, name: str, *, min_interval: float = 0.0, reconnect: bool = True
    ) -> AsyncIterator[learner_admin_pb2.WatchLearnerResponse]:
        """Yield the status of a learner: at once, and after every change, until the caller stops asking.

        A broken connection is opened again, unless `reconnect` is off. Ends with LearnerNotFoundError when the learner
        is deleted.
        """
        request = learner_admin_pb2.WatchLearnerRequest(name=name, min_interval=duration(min_interval))
        failures = 0
        while True:
            call = self._transport.stream("WatchLearner", request, None)
            messages = aiter(call)
            try:
                while True:
                    message = await asyncio.wait_for(anext(messages), IDLE_AFTER)
                    failures = 0
                    yield message
            except StopAsyncIteration:
                return
            except (SharpError, TimeoutError) as error:
                failures += 1
                silent = DeadlineError(f"no word of the server for {IDLE_AFTER:g} s", code="UNAVAILABLE")
                failure = error if isinstance(error, SharpError) else silent
                if not reconnect or failure.code != "UNAVAILABLE" or failures >= self._retry.attempts:
                    raise failure from None
                await asyncio.sleep(self._retry.delay(failures, failure.retry_delay))
            finally:
                call.cancel()

    async def forget_class(
        self,
        name: str,
        label: Label,
        *,
        older_snapshots: Literal["list", "delete"] = "list",
        timeout: float | None = None,
    ) -> learner_admin_pb2.ForgetClassResponse:
        """Make a learner forget a class; older snapshots that hold it are named, or deleted."""
        choices = {
            "list": learner_admin_pb2.OLDER_SNAPSHOTS_LIST,
            "delete": learner_admin_pb2.OLDER_SNAPSHOTS_DELETE,
        }
        if older_snapshots not in choices:
            raise ValueError(f"older_snapshots must be 'list' or 'delete', not {older_snapshots!r}")
        request = learner_admin_pb2.ForgetClassRequest(
            learner=name, label=encode_label(label), older_snapshots=choices[older_snapshots]
        )
        forgotten: learner_admin_pb2.ForgetClassResponse = await self._call("ForgetClass", request, timeout)
        return forgotten

    async def create_snapshot(
        self, name: str, *, note: str = "", timeout: float | None = None
    ) -> snapshot_pb2.Snapshot:
        """Save the version that serves, and keep it until it is deleted."""
        request = snapshot_pb2.CreateSnapshotRequest(learner=name, note=note)
        created: snapshot_pb2.CreateSnapshotResponse = await self._call("CreateSnapshot", request, timeout)
        return created.snapshot

    async def list_snapshots(self, name: str, *, timeout: float | None = None) -> list[snapshot_pb2.Snapshot]:
        """List all snapshots of a learner, newest first."""
        snapshots: list[snapshot_pb2.Snapshot] = []
        request = snapshot_pb2.ListSnapshotsRequest(learner=name, page_size=1000)
        while True:
            page: snapshot_pb2.ListSnapshotsResponse = await self._call("ListSnapshots", request, timeout)
            snapshots += page.snapshots
            if not page.next_page_token:
                return snapshots
            request.page_token = page.next_page_token

    async def restore_snapshot(
        self, name: str, snapshot_id: str, *, with_forgotten: bool = False, timeout: float | None = None
    ) -> snapshot_pb2.RestoreSnapshotResponse:
        """Make a learner what it was when a snapshot was taken, but for classes that were forgotten since.

        `with_forgotten` brings those back too.
        """
        request = snapshot_pb2.RestoreSnapshotRequest(
            learner=name, snapshot_id=snapshot_id, with_forgotten=with_forgotten
        )
        restored: snapshot_pb2.RestoreSnapshotResponse = await self._call("RestoreSnapshot", request, timeout)
        return restored

    async def delete_snapshot(
        self, name: str, snapshot_id: str, *, timeout: float | None = None
    ) -> snapshot_pb2.DeleteSnapshotResponse:
        """Delete a snapshot."""
        request = snapshot_pb2.DeleteSnapshotRequest(learner=name, snapshot_id=snapshot_id)
        deleted: snapshot_pb2.DeleteSnapshotResponse = await self._call("DeleteSnapshot", request, timeout)
        return deleted

    async def export_snapshot(
        self, name: str, path: str | os.PathLike[str], *, snapshot_id: str = "", timeout: float | None = None
    ) -> snapshot_pb2.Snapshot:
        """Write a snapshot, the newest if none is named, to a file: whole and with the right SHA-256, or not at all."""
        request = snapshot_pb2.ExportSnapshotRequest(learner=name, snapshot_id=snapshot_id)
        with SnapshotReceiver(path) as receiver:
            async for message in self._transport.stream("ExportSnapshot", request, timeout or self._timeout.transfer):
                receiver.receive(message)
            return receiver.finish()

    async def import_snapshot(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        restore: bool = False,
        note: str = "",
        timeout: float | None = None,
    ) -> snapshot_pb2.ImportSnapshotResponse:
        """Give a learner the snapshot in a file, and with `restore` make it what the snapshot holds.

        A learner of that name is made from the snapshot if there is none.
        """
        requests = import_requests(name, path, restore=restore, note=note)
        header = next(requests)  # made here, so that a file that can't be read is the caller's exception

        async def send() -> AsyncIterator[snapshot_pb2.ImportSnapshotRequest]:
            yield header
            for request in requests:
                yield request

        imported: snapshot_pb2.ImportSnapshotResponse = await self._transport.client_stream(
            "ImportSnapshot", send(), timeout or self._timeout.transfer
        )
        return imported

    async def list_parked_episodes(self, name: str, *, timeout: float | None = None) -> list[parked_pb2.ParkedEpisode]:
        """List all episodes of a learner that could not be learned, by number."""
        episodes: list[parked_pb2.ParkedEpisode] = []
        request = parked_pb2.ListParkedEpisodesRequest(learner=name, page_size=1000)
        while True:
            page: parked_pb2.ListParkedEpisodesResponse = await self._call("ListParkedEpisodes", request, timeout)
            episodes += page.episodes
            if not page.next_page_token:
                return episodes
            request.page_token = page.next_page_token

    async def retry_parked_episode(
        self, name: str, episode: int, *, timeout: float | None = None
    ) -> parked_pb2.RetryParkedEpisodeResponse:
        """Put a parked episode back in the queue."""
        request = parked_pb2.RetryParkedEpisodeRequest(learner=name, episode=episode)
        queued: parked_pb2.RetryParkedEpisodeResponse = await self._call("RetryParkedEpisode", request, timeout)
        return queued

    async def discard_parked_episode(
        self, name: str, episode: int, *, timeout: float | None = None
    ) -> parked_pb2.DiscardParkedEpisodeResponse:
        """Give up a parked episode and delete its examples."""
        request = parked_pb2.DiscardParkedEpisodeRequest(learner=name, episode=episode)
        discarded: parked_pb2.DiscardParkedEpisodeResponse = await self._call("DiscardParkedEpisode", request, timeout)
        return discarded

    async def get_server_status(self, *, timeout: float | None = None) -> admin_pb2.GetServerStatusResponse:
        """Tell how the server is: state, trainer, limits, disk, damages."""
        request = admin_pb2.GetServerStatusRequest()
        status: admin_pb2.GetServerStatusResponse = await self._call("GetServerStatus", request, timeout)
        return status
