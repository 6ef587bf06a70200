"""Snapshots."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from sharp_server.http.models.base import Answer, Count, Label, Question


class Snapshot(Answer):
    """A learner as it was at one version."""

    id: str
    model_version: Count
    episodes_learned: Count
    classes: list[Label]
    origin: Literal["automatic", "requested", "imported"]
    create_time: datetime
    size_bytes: Count
    sha256: str
    note: str
    damaged: bool


class Snapshots(Answer):
    """A page of the list of snapshots, newest first."""

    snapshots: list[Snapshot]
    next_page_token: str


class NewSnapshot(Question):
    """A snapshot to be made."""

    note: str = ""


class DeletedSnapshot(Answer):
    """A snapshot is gone."""

    size_bytes: Count


class RestoreRequest(Question):
    """How a snapshot is restored."""

    with_forgotten: bool = Field(default=False, description="Whether classes forgotten since then come back.")


class Restored(Answer):
    """The learner is what it was."""

    model_version: Count
    previous_model_version: Count
    episodes_undone: Count
    classes_forgotten: list[Label]


class Imported(Answer):
    """A file was taken in."""

    snapshot: Snapshot
    model_version: Count = Field(description="Under which it serves. 0: it does not.")
    created: bool = Field(description="Whether the learner is new.")
