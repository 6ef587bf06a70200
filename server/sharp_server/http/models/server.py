"""The server itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from sharp_server.http.models.base import Answer, Count


class Access(Answer):
    """What a caller may do."""

    version: str = Field(description="Of the software.")
    token_needed: bool
    roles: list[Literal["predict", "learn", "admin"]] = Field(description="Those of the token that came.")


class Trainer(Answer):
    """The process that trains."""

    running: bool
    restarts: Count
    learner: str
    episode: Count
    memory_bytes: Count


class Teacher(Answer):
    """The process that teaches what is known at once."""

    running: bool
    restarts: Count
    memory_bytes: Count


class ServerStatus(Answer):
    """How the server is."""

    version: str
    start_time: datetime
    state: Literal["starting", "serving", "stopping"]
    learners: Count
    trainer: Trainer
    teacher: Teacher
    data_bytes: Count
    free_bytes: Count
    corruption_events: Count
    device: str
    object_store_failure: str
