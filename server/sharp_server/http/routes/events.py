"""What happens, as server-sent events: the state at once and after every change, and each event with its number.

A reader that comes back with Last-Event-ID gets the events that it missed, as far as they are kept; whoever comes
without gets those that are kept. Nothing waits for a slow reader: it gets the newest state when it is ready for it. A
state is written once for all who read it, and between two states only the little that changes all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
import weakref
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from sharp.v1 import episode_pb2
from sharp_server.api.admission import Admission
from sharp_server.api.messages import learner_message, status_message
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.http import conversion
from sharp_server.http.broadcast import Broadcast, Text
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name
from sharp_server.learners.mailbox import Mailbox
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.server_state import ServerState

_LEAST_SECONDS = 0.35
"""Between two texts."""
_MOST_SECONDS = 2.0
"""The same while nothing happens: rates change by themselves."""
_OVERVIEW_SECONDS = 1.0
_EVENTS = 500
"""Whose texts are kept for whoever reads them next."""
_RECONNECT = b"retry: 1000\n\n"
_SELDOM = {"layers", "memories", "quality"}
"""Parts of a status that change only with what the learner knows: they come with the whole state."""

_STREAM = {
    "description": "Server-sent events: `state`, `status` between two states, `event`, and `gone` in the end.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}

LastEventId = Annotated[str, Header(description="The id of the last event that was read.")]


def routers(
    guard: HttpGuard, admission: Admission, limits: LimitsConfig, state: ServerState, registry: Registry
) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "events")
    overview = _overview(limits, state, registry)
    watched: dict[str, _Watched] = {}
    start = uuid.uuid4().hex[:8]
    """Distinguishes the numbers of this process from those of the one before."""

    async def of_all() -> AsyncIterator[bytes]:
        with admission.stream():
            yield _RECONNECT
            async with contextlib.aclosing(overview.texts()) as texts:
                async for text, _ in texts:
                    yield text

    async def of_one(served: ServedLearner, after: int) -> AsyncIterator[bytes]:
        learner = watched.setdefault(served.uid, _Watched(_of_learner(limits, state, served), start))
        broadcast = learner.broadcast
        try:
            with admission.stream():
                yield _RECONNECT
                async with contextlib.aclosing(broadcast.texts()) as texts:
                    async for text, happened in texts:
                        for number, message in served.event_log.after(after):
                            if number > happened:
                                break  # it belongs to the next text
                            yield learner.event(number, message)
                            after = number
                        if not served.deleted:
                            yield text
                if served.deleted:
                    yield _sent("gone", "{}")
        finally:
            if not broadcast.readers:
                watched.pop(served.uid, None)

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


class _Watched:
    """A learner that somebody watches: its state, and its events, each written once for all who read it."""

    def __init__(self, broadcast: Broadcast, start: str) -> None:
        self.broadcast, self._start = broadcast, start
        self._events: dict[int, bytes] = {}

    def event(self, number: int, message: episode_pb2.EpisodeEvent) -> bytes:
        """One event as it is sent."""
        text = self._events.get(number)
        if text is None:
            written = conversion.event(number, message).model_dump_json(exclude_none=True)
            text = self._events[number] = _sent("event", written, f"{self._start}-{number}")
            self._events.pop(number - _EVENTS, None)
        return text


def _overview(limits: LimitsConfig, state: ServerState, registry: Registry) -> Broadcast:
    async def write(before: Text | None) -> Text:
        found = []
        for served in sorted(registry, key=lambda served: served.name):
            message = learner_message(served, limits.unlearned_bytes, whole=False)
            found.append(conversion.learner_summary(message).model_dump_json())
            await asyncio.sleep(0)  # there may be many: predictions come between
        text = _sent("state", f'{{"learners":[{",".join(found)}]}}')
        return Text(text, text, 0)

    async def pause() -> bool:
        return await _pause(state, _OVERVIEW_SECONDS)

    return Broadcast(write, pause)


def _of_learner(limits: LimitsConfig, state: ServerState, served: ServedLearner) -> Broadcast:
    known: tuple[object, ...] = ()
    whole = b""

    async def write(before: Text | None) -> Text:
        nonlocal known, whole
        model = weakref.ref(served.model)  # it is large, and must not be freed here, on the event loop
        now = (model, served.layers, served.config, served.input_shape, served.label_kind)
        if before is None or any(one is not other for one, other in zip(known, now, strict=True)):
            known = now
            learner = conversion.learner(learner_message(served, limits.unlearned_bytes))
            whole = _sent("state", learner.model_dump_json())
            return Text(whole, whole, served.event_log.last)
        status = conversion.status(status_message(served, limits.unlearned_bytes, layers=False, quality=False))
        change = _sent("status", status.model_dump_json(exclude=_SELDOM))
        return Text(whole + change, change, served.event_log.last)

    async def pause() -> bool:
        mailbox = Mailbox(1)
        with served.watch(mailbox):
            if await _pause(state, _LEAST_SECONDS) and not served.deleted:
                with contextlib.suppress(TimeoutError, RpcError):
                    await asyncio.wait_for(state.unless_stopping(mailbox.wait()), _MOST_SECONDS - _LEAST_SECONDS)
        return not state.stopping and not served.deleted

    return Broadcast(write, pause)


async def _pause(state: ServerState, seconds: float) -> bool:
    """Wait; whether the server goes on."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(state.wait_until_stopping(), seconds)
    return not state.stopping


def _stream(parts: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(parts, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _sent(kind: str, data: str, number: str = "") -> bytes:
    return f"{f'id: {number}{chr(10)}' if number else ''}event: {kind}\ndata: {data}\n\n".encode()
