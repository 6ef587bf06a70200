"""Bodies of requests, bounded in size and in time while they are read.

A body that announces too much is refused before a byte of it is read; one that lies, when the bound is reached; one
that comes too slowly, when its time is over. Nothing of a body is written to disk.
"""

from __future__ import annotations

import asyncio
import math

from starlette.formparsers import MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Receive

from sharp_server.config.model import HttpConfig, LimitsConfig
from sharp_server.http.errors import HttpError

_LEAST_BYTES_PER_SECOND = 32 << 10

# Images that came in a form would be written to a temporary file: raw examples have no business there.
MultiPartParser.spool_max_size = 1 << 40


class BodyBounds:
    """How much a body may hold: JSON less than bytes, because it is parsed on the event loop."""

    def __init__(self, http: HttpConfig, limits: LimitsConfig) -> None:
        self.json_bytes, self._message_bytes = http.json_bytes, limits.message_bytes
        self._grace = http.client_seconds

    def limit(self, request: Request) -> int:
        """The most bytes of a request's body."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        binary = kind in ("multipart/form-data", "application/octet-stream")
        return (
            self._message_bytes if binary or "inference-header-content-length" in request.headers else self.json_bytes
        )

    def bounded(self, request: Request, streamed: bool = False) -> Request:
        """The same request with a body that is bounded, or the refusal; one that is streamed, in time only."""
        if streamed:
            return Request(request.scope, _bounded(request.receive, math.inf, self._grace))
        limit = self.limit(request)
        announced = request.headers.get("content-length", "0")
        if not announced.isascii() or not announced.isdigit() or int(announced[:19]) > limit:
            raise too_large(limit)
        return Request(request.scope, _bounded(request.receive, limit, self._grace))


def too_large(limit: int) -> HttpError:
    """The refusal of a body that is over its limit."""
    return HttpError("BODY_TOO_LARGE", f"the body has more than {limit} bytes: send less, or binary data")


def _bounded(receive: Receive, limit: float, grace: float) -> Receive:
    begun: float | None = None
    read, ended = 0, False

    async def bounded() -> Message:
        nonlocal begun, read, ended
        if ended:  # what is waited for now is that the client leaves
            return await receive()
        loop = asyncio.get_running_loop()
        begun = loop.time() if begun is None else begun
        try:
            async with asyncio.timeout_at(begun + grace + read / _LEAST_BYTES_PER_SECOND):
                message = await receive()
        except TimeoutError:
            raise HttpError("BODY_TOO_SLOW", "the body came too slowly") from None
        read += len(message.get("body", b""))
        ended = not message.get("more_body", False)
        if read > limit:
            raise too_large(int(limit))
        return message

    return bounded
