"""Who is let in, and how many at once: one account for every edge, gRPC and HTTP alike.

It knows tokens, the stage of the server and the bound on streams. It must never look at a message: no byte of one is
read before its call was let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from sharp_server.api.auth import Tokens
from sharp_server.errors import RpcError
from sharp_server.runtime.server_state import ServerState, not_ready

_QUIET_SECONDS = 0.2
"""No call for this long after the signal: those that were on their way have arrived."""


class Admission:
    """Lets calls in and counts those under way; belongs to the event loop."""

    def __init__(self, state: ServerState, stream_limit: int, tokens: Tokens | None) -> None:
        self._state, self._stream_limit, self._tokens = state, stream_limit, tokens
        self._streams = 0
        self._endless = 0
        """Those of them that nobody waits for at the end: watchers of health, readers of reflection."""
        self._unary_calls = 0
        self._last_call = 0.0

    @property
    def asks_for_tokens(self) -> bool:
        """Whether anybody needs a token at all."""
        return self._tokens is not None

    def roles(self, authorization: str | bytes | None) -> frozenset[str] | None:
        """The roles of a caller; None: no token is asked for."""
        return None if self._tokens is None else self._tokens.roles(authorization)

    def check(self, role: str | None, authorization: str | bytes | None, always: bool = False) -> None:
        """Refuse whoever lacks the role (None: nobody does), and what comes too early or too late.

        `always`: the call is answered at any time.
        """
        if role is not None and self._tokens is not None:
            self._tokens.check(role, authorization)
        if not self._state.serving:
            self._last_call = time.monotonic()
            if not always:
                raise not_ready(self._state.stage)

    def begin_call(self) -> None:
        """A call is under way; the server waits for its end before it stops.

        The caller says `end_call` in a `finally`: a context manager costs every prediction two microseconds.
        """
        self._unary_calls += 1

    def end_call(self) -> None:
        """It was answered, or given up."""
        self._unary_calls -= 1

    @contextlib.contextmanager
    def stream(self, endless: bool = False) -> Iterator[None]:
        """A stream is open, unless there are too many; an endless one is waited for by nobody."""
        self.check_streams()
        self._streams += 1
        self._endless += endless
        try:
            yield
        finally:
            self._streams -= 1
            self._endless -= endless

    def check_streams(self) -> None:
        """Refuse one stream more than there may be."""
        if self._streams >= self._stream_limit:
            limit = self._stream_limit
            raise RpcError("TOO_MANY_STREAMS", f"{limit} streams are open already", limit=limit)

    async def drained(self, seconds: float) -> None:
        """Wait until calls under way are done and those on their way have been refused.

        Whoever arrives meanwhile is refused by us, with a reason; the transport would just break the call off.
        """
        deadline = time.monotonic() + seconds
        self._last_call = time.monotonic()
        while time.monotonic() < deadline:
            quiet = time.monotonic() - self._last_call > _QUIET_SECONDS
            if not self._unary_calls and self._streams == self._endless and quiet:
                return
            await asyncio.sleep(0.02)
