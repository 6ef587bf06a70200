"""Snapshots, what restoring, importing and deleting them did, and files of weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sharp.v1 import snapshot_pb2, weights_pb2

from .._labels import Label
from .decoding import Answer


@dataclass(frozen=True, repr=False)
class Snapshot(Answer, message=snapshot_pb2.Snapshot):
    """A learner as it was at one version, in one file on the server."""

    id: str = ""
    """Its id, unique within the learner."""
    learner: str = ""
    """Name of the learner."""
    model_version: int = 0
    """The version it holds. If imported: the version where it was made."""
    episodes_learned: int = 0
    """Episodes that this version has learned."""
    classes: tuple[Label, ...] = ()
    """The classes it holds."""
    origin: str = ""
    """Where it came from: "automatic", "requested" or "imported"."""
    create_time: datetime | None = None
    """When it was made or imported."""
    size_bytes: int = 0
    """Size of the file."""
    sha256: str = field(default="", repr=False)
    """SHA-256 of the file, 64 hex digits."""
    note: str = ""
    """The operator's own words."""
    damaged: bool = False
    """Whether the file was found damaged: it can only be deleted."""


@dataclass(frozen=True, repr=False)
class RestoredSnapshot(Answer, message=snapshot_pb2.RestoreSnapshotResponse):
    """A learner is what it was when a snapshot was made."""

    model_version: int = 0
    """The new version that serves."""
    previous_model_version: int = 0
    """The version that served before."""
    episodes_undone: int = 0
    """Episodes learned since the snapshot was made, which the learner no longer knows."""
    classes_forgotten: tuple[Label, ...] = ()
    """Classes that were forgotten after the snapshot was made, and so were forgotten again."""


@dataclass(frozen=True, repr=False)
class DeletedSnapshot(Answer, message=snapshot_pb2.DeleteSnapshotResponse):
    """A snapshot is gone."""

    size_bytes: int = 0
    """Bytes that became free."""


@dataclass(frozen=True, repr=False)
class ImportedSnapshot(Answer, message=snapshot_pb2.ImportSnapshotResponse):
    """A snapshot has arrived on the server."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    """The snapshot, checked and durable."""
    model_version: int = 0
    """The new version that holds it. 0: it was only stored."""
    created: bool = False
    """Whether the learner was created from it."""


@dataclass(frozen=True, repr=False)
class ImportedWeights(Answer, message=weights_pb2.ImportWeightsResponse):
    """A file of weights is on the server."""

    name: str = ""
    """Its name there, which settings such as `weights` of a backbone take."""
    stored: bool = False
    """False: it was there before, and was not sent again."""
