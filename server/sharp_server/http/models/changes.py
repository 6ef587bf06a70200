"""What is known, changed by hand: a class forgotten or renamed, a version undone."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sharp_server.http.models.base import Answer, Count, Label, Question, Version
from sharp_server.http.models.snapshots import Snapshot


class ForgetRequest(Question):
    """A class to be forgotten."""

    label: Label
    older_snapshots: Literal["keep", "delete"] = "keep"


class Forgotten(Answer):
    """A class is gone."""

    model_version: Count
    ltm_entries: Count
    stm_entries: Count
    journal_examples: Count
    discarded_episodes: list[int]
    snapshots_holding: list[Snapshot]
    snapshots_deleted: list[Snapshot]


class UndoRequest(Question):
    """A version to be undone: the one that serves."""

    model_version: Version = Field(default=0, description="0: whichever serves.")
    preview: bool = Field(default=False, description="Whether only to say what would be undone.")


class Undone(Answer):
    """The version before serves again, or would."""

    model_version: Count
    undone_model_version: Count
    restored_model_version: Count
    cause: str = Field(description="What had made the version that was undone.")
    episodes_undone: Count
    episodes_waiting: Count
    classes_forgotten: list[Label]


class RenameRequest(Question):
    """Another name for a class."""

    label: Label
    new_label: Label


class MergeRequest(Question):
    """Two classes that are one."""

    source: Label
    target: Label


class Relabelled(Answer):
    """The class has its new name."""

    model_version: Count
    journal_examples: Count
    snapshots_holding: list[Snapshot]
