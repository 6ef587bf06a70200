"""One connection: uvicorn's, cut off when its client is too slow to ask or to read.

A body that comes too slowly is the business of `body`, which can still answer. Here nothing is answered: there is no
request yet, or nobody reads.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_BYTES = 32 << 10
"""Of a request's line and headers."""


class BoundedConnection(H11Protocol):
    """h11 rather than httptools: only the former bounds the head of a request."""

    client_seconds: ClassVar[float]
    """For the head of a request, since the connection was made or the last answer was given; and for a client to take
    the next bytes of an answer."""

    _idle_since: float | None = None
    """No request is under way since then."""
    _stalled_since: float | None = None
    """The client has not taken what was written since then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, unless there are too many."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) > 2 * limit:  # those up to there are answered 503
            transport.abort()

    def on_response_complete(self) -> None:
        """An answer was given."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self._stalled_since = None
        super().resume_writing()

    def cut_off_if_slow(self, now: float) -> None:
        """Called every second."""
        waits_since = self._stalled_since if self._under_way else self._idle_since
        if waits_since is not None and now - waits_since > self.client_seconds:
            self.transport.abort()

    @property
    def _under_way(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete
