"""How good versions are, on examples that they answer as if they had never learned them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from sharp_server.http.models.base import Answer, Count, Label


class ClassQuality(Answer):
    """How the held-out examples of one class are answered."""

    label: Label
    examples: Count
    right: Count


class Confusion(Answer):
    """Held-out examples of one class that were answered with another."""

    label: Label
    answered: Label
    examples: Count


class Quality(Answer):
    """How good a version is, on examples that it answers as if it had never learned them."""

    model_version: Count
    create_time: datetime
    examples: Count
    right: Count
    classes: list[ClassQuality] = Field(description="Worst first.")
    confusions: list[Confusion] = Field(description="Most frequent first.")


class ClassFall(Answer):
    """A class that got worse from one version to the next."""

    before: ClassQuality
    now: ClassQuality


class QualityReport(Answer):
    """A version beside the one before it."""

    quality: Quality | None
    before: Quality | None
    fallen: list[ClassFall] = Field(description="By more than chance explains, worst first.")


class Qualities(Answer):
    """A page of the list of versions that were measured, newest first."""

    qualities: list[Quality]
    next_page_token: str
