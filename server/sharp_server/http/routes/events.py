"""What happens, as server-sent events: the state at once and after every change, and each event with its number.

A reader that comes back with Last-Event-ID gets the events that it missed, as far as they are kept; whoever comes
without gets those that are kept. Nothing waits for a slow reader: it gets the newest state when it is ready for it. A
state is written once for all who read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from sharp_server.api.admission import Admission
from sharp_server.api.messages import learner_message
from sharp_server.config.model import LimitsConfig
from sharp_server.http import conversion
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name
from sharp_server.learners.mailbox import Mailbox
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.server_state import ServerState

_LEAST_SECONDS = 0.25
"""Between two states."""
_MOST_SECONDS = 2.0
"""The same while nothing happens: rates change by themselves."""
_RECONNECT_MILLISECONDS = 1000

_STREAM = {
    "description": "Server-sent events: `state`, `event`, and `gone` when the learner was deleted.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}

LastEventId = Annotated[str, Header(description="The id of the last event that was read.")]


@dataclass
class _Written:
    text: str
    revision: int
    time: float


class _States:
    """States as they are sent, each written once for all who read it."""

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}

    def get(self, key: str, revision: int, write: Callable[[], str]) -> str:
        now = time.monotonic()
        found = self._written.get(key)
        if found is None or found.revision != revision or now - found.time >= _MOST_SECONDS / 2:
            found = self._written[key] = _Written(write(), revision, now)
        return found.text

    def drop(self, key: str) -> None:
        self._written.pop(key, None)


def routers(
    guard: HttpGuard, admission: Admission, limits: LimitsConfig, state: ServerState, registry: Registry
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "events")
    states = _States()
    start = uuid.uuid4().hex[:8]
    """Distinguishes the numbers of this process from those of the one before."""

    def overview() -> str:
        learners = sorted(registry, key=lambda served: served.name)
        messages = [learner_message(served, limits.unlearned_bytes, whole=False) for served in learners]
        found = [conversion.learner_summary(message).model_dump(mode="json") for message in messages]
        return _sent("state", json.dumps({"learners": found}, separators=(",", ":")))

    def whole(served: ServedLearner) -> str:
        return _sent("state", conversion.learner(learner_message(served, limits.unlearned_bytes)).model_dump_json())

    async def pause(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.wait_until_stopping(), seconds)

    async def of_all() -> AsyncIterator[str]:
        with admission.stream():
            yield f"retry: {_RECONNECT_MILLISECONDS}\n\n"
            while not state.stopping:
                yield states.get("", 0, overview)
                await pause(_MOST_SECONDS / 2)

    async def of_one(served: ServedLearner, after: int) -> AsyncIterator[str]:
        mailbox, key = Mailbox(1), f"{served.uid}"
        with admission.stream(), served.watch(mailbox):
            yield f"retry: {_RECONNECT_MILLISECONDS}\n\n"
            while not state.stopping:
                mailbox.take()
                if served.deleted:
                    states.drop(key)
                    yield _sent("gone", "{}")
                    return
                missed = served.event_log.after(after)
                for number, message in missed:
                    text = conversion.event(number, message).model_dump_json(exclude_none=True)
                    yield _sent("event", text, f"{start}-{number}")
                    after = number
                yield states.get(key, served.revision, lambda: whole(served))
                await pause(_LEAST_SECONDS)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(mailbox.wait(), _MOST_SECONDS - _LEAST_SECONDS)

    @router.get("/api/events", response_class=StreamingResponse, responses={200: _STREAM})
    async def events_of_all() -> StreamingResponse:
        """All learners in brief, at once and again and again."""
        admission.check_streams()
        return _stream(of_all())

    @router.get("/api/learners/{name}/events", response_class=StreamingResponse, responses={200: _STREAM})
    async def events_of_learner(name: Name, last_event_id: LastEventId = "") -> StreamingResponse:
        """Everything about one learner, at once and after every change, and what happens to its episodes."""
        served = registry.get(name)
        admission.check_streams()
        process, _, number = last_event_id.partition("-")
        known = process == start and number.isascii() and number.isdigit()
        return _stream(of_one(served, int(number[:18]) if known else 0))

    return [router]


def _stream(parts: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(parts, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _sent(kind: str, data: str, number: str = "") -> str:
    return f"{f'id: {number}{chr(10)}' if number else ''}event: {kind}\ndata: {data}\n\n"
