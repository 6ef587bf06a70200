"""What renaming and merging classes and undoing a version did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sharp.v1 import class_admin_pb2

from .._labels import Label
from .decoding import Answer
from .snapshots import Snapshot


@dataclass(frozen=True, repr=False)
class RenamedClass(Answer, message=class_admin_pb2.RenameClassResponse):
    """A class has another name."""

    model_version: int = 0
    """The version that serves, which answers with the new name."""
    journal_examples: int = 0
    """Examples that wait and are learned under the new name."""
    snapshots_holding: tuple[Snapshot, ...] = ()
    """Snapshots that still hold the old name, newest first: restoring one brings it back."""


@dataclass(frozen=True, repr=False)
class MergedClasses(Answer, message=class_admin_pb2.MergeClassesResponse):
    """Two classes are one."""

    model_version: int = 0
    """The version that serves, which answers with the target where it knew the source."""
    examples: int = 0
    """Examples of the target that it has learned, those of the source included."""
    journal_examples: int = 0
    """Examples that wait and are learned as the target."""
    snapshots_holding: tuple[Snapshot, ...] = ()
    """Snapshots that still hold the source, newest first: restoring one brings it back."""


@dataclass(frozen=True, repr=False)
class UndoneVersion(Answer, message=class_admin_pb2.UndoVersionResponse):
    """A learner is what it was one version before."""

    model_version: int = 0
    """The version that serves."""
    undone_model_version: int = 0
    """The version that was undone."""
    restored_model_version: int = 0
    """The version that came back."""
    restored_create_time: datetime | None = None
    """When that had come to serve."""
    cause: str = ""
    """What had made the version that was undone: "learned", "forgotten", "restored", "renamed", …"""
    episodes_undone: int = 0
    """Episodes that are unknown now; their examples are gone."""
    episodes_waiting: int = 0
    """Episodes that wait, and are learned on top of what came back."""
    classes_forgotten: tuple[Label, ...] = ()
    """Classes of the version before that stay forgotten."""
