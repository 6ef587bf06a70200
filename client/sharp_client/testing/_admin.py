"""The methods of Admin. Each is named `do_` and the RPC, and takes its request."""
# ruff: noqa: N802, D102

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from sharp.v1 import episode_pb2, learner_admin_pb2, learner_pb2, parked_pb2, snapshot_pb2, weights_pb2

from .._errors import SharpError
from .._labels import decode_label, decode_labels, encode_labels
from .._reasons import (
    ChecksumMismatchError,
    ClassNotFoundError,
    EpisodeNotFoundError,
    NothingLearnedError,
    SnapshotInUseError,
    SnapshotMalformedError,
    SnapshotNotFoundError,
    UnexpectedMessageError,
    WeightsMalformedError,
)
from ._learner import Episode, FakeLearner
from ._refusals import refuse
from ._versions import VersionMethods

CHUNK_BYTES = 2**16
"""Bytes of one part of an exported file."""


class AdminMethods(VersionMethods):
    """What an operator can do."""

    learners: dict[str, FakeLearner]
    weights: dict[str, bytes]
    """Files that were imported, by the names that the answers gave them."""

    def find(self, name: str) -> FakeLearner:
        """Find a learner by name."""
        raise NotImplementedError

    def create(self, name: str, config: learner_pb2.LearnerConfig) -> FakeLearner:
        """Create a learner."""
        raise NotImplementedError

    def do_CreateLearner(
        self, request: learner_admin_pb2.CreateLearnerRequest
    ) -> learner_admin_pb2.CreateLearnerResponse:
        return learner_admin_pb2.CreateLearnerResponse(learner=self.create(request.name, request.config).describe())

    def do_GetLearner(self, request: learner_admin_pb2.GetLearnerRequest) -> learner_admin_pb2.GetLearnerResponse:
        return learner_admin_pb2.GetLearnerResponse(learner=self.find(request.name).describe())

    def do_ListLearners(self, request: learner_admin_pb2.ListLearnersRequest) -> learner_admin_pb2.ListLearnersResponse:
        size = min(request.page_size or 50, 1000)
        names = [name for name in sorted(self.learners) if name > request.page_token]
        return learner_admin_pb2.ListLearnersResponse(
            learners=[self.learners[name].describe(short=True) for name in names[:size]],
            next_page_token=names[size - 1] if len(names) > size else "",
        )

    def do_DeleteLearner(
        self, request: learner_admin_pb2.DeleteLearnerRequest
    ) -> learner_admin_pb2.DeleteLearnerResponse:
        learner = self.find(request.name)
        if request.uid not in ("", learner.uid):
            self.find(f"{request.name} of uid {request.uid}")
        del self.learners[request.name]
        return learner_admin_pb2.DeleteLearnerResponse(
            unlearned_examples=learner.status().backlog.examples, snapshots=len(learner.snapshots)
        )

    def do_ForgetClass(self, request: learner_admin_pb2.ForgetClassRequest) -> learner_admin_pb2.ForgetClassResponse:
        learner, label = self.find(request.learner), decode_label(request.label)
        if label not in learner.classes and label not in learner.met and label not in learner.forgotten:
            raise refuse(ClassNotFoundError, f"{learner.name} does not know {label!r}", label=label)
        known = learner.classes.pop(label, None)
        removed = learner.forget_beyond(label)
        learner.forgotten.add(label)
        holding = [found for found, _ in learner.snapshots.values() if label in decode_labels(found.classes)]
        delete = request.older_snapshots == learner_admin_pb2.OLDER_SNAPSHOTS_DELETE
        for snapshot in holding if delete else ():
            del learner.snapshots[snapshot.id]
        if known is not None:
            learner.new_version("forgotten")
        return learner_admin_pb2.ForgetClassResponse(
            model_version=learner.model_version,
            ltm_entries=int(known is not None),
            journal_examples=removed,
            snapshots_holding=[] if delete else holding[::-1],
            snapshots_deleted=holding[::-1] if delete else [],
        )

    def do_CreateSnapshot(self, request: snapshot_pb2.CreateSnapshotRequest) -> snapshot_pb2.CreateSnapshotResponse:
        learner = self.find(request.learner)
        if learner.lessons:
            learner.consolidate()
            learner.new_version("taught")
        if learner.model_version == 0:
            raise refuse(NothingLearnedError, f"{learner.name} has learned nothing yet", learner=learner.name)
        snapshot = learner.save(snapshot_pb2.SNAPSHOT_ORIGIN_REQUESTED, request.note)
        return snapshot_pb2.CreateSnapshotResponse(snapshot=snapshot)

    def do_ListSnapshots(self, request: snapshot_pb2.ListSnapshotsRequest) -> snapshot_pb2.ListSnapshotsResponse:
        snapshots = [snapshot for snapshot, _ in self.find(request.learner).snapshots.values()]
        return snapshot_pb2.ListSnapshotsResponse(snapshots=snapshots[::-1])

    def _snapshot(self, name: str, snapshot_id: str) -> tuple[snapshot_pb2.Snapshot, bytes]:
        found = self.find(name).snapshots
        if not found or (snapshot_id and snapshot_id not in found):
            raise refuse(SnapshotNotFoundError, f"{name} has no snapshot {snapshot_id!r}", snapshot=snapshot_id)
        return found[snapshot_id or list(found)[-1]]

    def do_RestoreSnapshot(self, request: snapshot_pb2.RestoreSnapshotRequest) -> snapshot_pb2.RestoreSnapshotResponse:
        snapshot, data = self._snapshot(request.learner, request.snapshot_id)
        learner = self.find(request.learner)
        before, learned = learner.model_version, learner.episodes_learned
        if request.with_forgotten:
            learner.forgotten -= set(decode_labels(snapshot.classes))
        learner.restore(data)
        again = [label for label in decode_labels(snapshot.classes) if label in learner.forgotten]
        return snapshot_pb2.RestoreSnapshotResponse(
            model_version=learner.model_version,
            previous_model_version=before,
            episodes_undone=max(0, learned - snapshot.episodes_learned),
            classes_forgotten=encode_labels(again) if again else None,
        )

    def do_DeleteSnapshot(self, request: snapshot_pb2.DeleteSnapshotRequest) -> snapshot_pb2.DeleteSnapshotResponse:
        snapshot, _ = self._snapshot(request.learner, request.snapshot_id)
        found = self.find(request.learner).snapshots
        own = [one.id for one, _ in found.values() if one.origin == snapshot_pb2.SNAPSHOT_ORIGIN_AUTOMATIC]
        if own and snapshot.id == own[-1]:
            raise refuse(SnapshotInUseError, "the learner would start from it", snapshot=snapshot.id)
        del found[snapshot.id]
        return snapshot_pb2.DeleteSnapshotResponse(size_bytes=snapshot.size_bytes)

    def do_ExportSnapshot(
        self, request: snapshot_pb2.ExportSnapshotRequest
    ) -> Iterator[snapshot_pb2.ExportSnapshotResponse]:
        snapshot, data = self._snapshot(request.learner, request.snapshot_id)
        yield snapshot_pb2.ExportSnapshotResponse(snapshot=snapshot)
        for start in range(0, len(data), CHUNK_BYTES):
            yield snapshot_pb2.ExportSnapshotResponse(chunk=data[start : start + CHUNK_BYTES])

    def do_ImportSnapshot(
        self, requests: list[snapshot_pb2.ImportSnapshotRequest]
    ) -> snapshot_pb2.ImportSnapshotResponse:
        header, data = _file(requests, SnapshotMalformedError)
        FakeLearner.read(data)
        created = header.learner not in self.learners
        learner = self.create(header.learner, learner_pb2.LearnerConfig()) if created else self.find(header.learner)
        snapshot = learner.store(data, snapshot_pb2.SNAPSHOT_ORIGIN_IMPORTED, header.note)
        if created or header.restore:
            learner.restore(data)
        return snapshot_pb2.ImportSnapshotResponse(
            snapshot=snapshot,
            model_version=learner.model_version if created or header.restore else 0,
            created=created,
        )

    def do_ImportWeights(self, requests: list[weights_pb2.ImportWeightsRequest]) -> weights_pb2.ImportWeightsResponse:
        header, data = _file(requests, WeightsMalformedError)
        name = header.sha256.hex() + (".safetensors" if data[8:9] == b"{" else ".pth")
        stored = name not in self.weights
        self.weights[name] = data
        return weights_pb2.ImportWeightsResponse(name=name, stored=stored)

    def _parked(self, name: str, number: int) -> Episode:
        learner = self.find(name)
        if number not in learner.parked:
            raise refuse(EpisodeNotFoundError, f"{name} has no parked episode {number}", episode=number)
        return learner.parked.pop(number)[1]

    def do_ListParkedEpisodes(
        self, request: parked_pb2.ListParkedEpisodesRequest
    ) -> parked_pb2.ListParkedEpisodesResponse:
        episodes = [parked for parked, _ in self.find(request.learner).parked.values()]
        return parked_pb2.ListParkedEpisodesResponse(episodes=episodes)

    def do_RetryParkedEpisode(
        self, request: parked_pb2.RetryParkedEpisodeRequest
    ) -> parked_pb2.RetryParkedEpisodeResponse:
        learner = self.find(request.learner)
        episode = self._parked(request.learner, request.episode)
        learner.record(episode, learner.learn(episode))
        return parked_pb2.RetryParkedEpisodeResponse()

    def do_DiscardParkedEpisode(
        self, request: parked_pb2.DiscardParkedEpisodeRequest
    ) -> parked_pb2.DiscardParkedEpisodeResponse:
        episode = self._parked(request.learner, request.episode)
        discarded = episode_pb2.EpisodeDiscarded(reason=episode_pb2.DISCARD_REASON_OPERATOR)
        event = episode_pb2.EpisodeEvent(episode=episode.number, discarded=discarded)
        self.find(request.learner).record(episode, [event])
        return parked_pb2.DiscardParkedEpisodeResponse(examples=len(episode.y))


def _file(requests: list[Any], malformed: type[SharpError]) -> tuple[Any, bytes]:
    """The header and the bytes of a file that was sent, if they belong together."""
    if not requests or not requests[0].HasField("header") or any(part.HasField("header") for part in requests[1:]):
        raise refuse(UnexpectedMessageError, "the header comes first", expected="header", found="chunk")
    header, data = requests[0].header, b"".join(part.chunk for part in requests[1:])
    if len(data) != header.size_bytes:
        raise refuse(malformed, "the size is not the announced one", defect="size")
    found = hashlib.sha256(data)
    if header.sha256 and found.digest() != header.sha256:
        expected = header.sha256.hex()
        raise refuse(ChecksumMismatchError, "not the announced SHA-256", expected=expected, found=found.hexdigest())
    return header, data
