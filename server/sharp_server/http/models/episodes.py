"""Episodes: those that could not be learned, and what happens to all of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sharp_server.http.models.base import Answer, Count, Label


class ParkedEpisode(Answer):
    """An episode that could not be learned."""

    episode: Count
    stream_id: str
    reason: str
    detail: str
    attempts: Count
    park_time: datetime
    examples: Count
    size_bytes: Count
    classes: list[Label]


class ParkedEpisodes(Answer):
    """A page of the list of parked episodes, by number."""

    episodes: list[ParkedEpisode]
    next_page_token: str


class Retried(Answer):
    """A parked episode waits again."""

    episodes_ahead: Count


class Discarded(Answer):
    """A parked episode is gone."""

    examples: Count


class Event(Answer):
    """Something that happened to an episode."""

    id: Count
    episode: Count
    time: datetime
    kind: Literal["closed", "started", "learned", "parked", "discarded"]
    examples: Count | None = None
    classes: list[Label] | None = None
    new_classes: list[Label] | None = None
    phases: Count | None = None
    model_version: Count | None = None
    seconds: float | None = None
    reason: str | None = None
    detail: str | None = None
