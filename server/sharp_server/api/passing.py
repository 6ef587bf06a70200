"""What the guard asks in a cluster before it answers a call: whether another server should, and that it be passed on.

`cluster.forwarding` is the implementation. Without a cluster there is none, and nothing of this is asked.
"""

from __future__ import annotations

from typing import Any, Protocol

import grpc

from sharp_server.errors import RpcError


class PassedOnError(Exception):
    """Another server refused the call: its status, details and trailers are the answer."""

    def __init__(self, failed: grpc.aio.AioRpcError) -> None:
        super().__init__(failed.details())
        self.code: grpc.StatusCode = failed.code()
        self.details = failed.details() or ""
        trailers: Any = failed.trailing_metadata() or ()
        self.trailers = tuple((key, value) for key, value in trailers)


class StreamKind(Protocol):
    """On which sides of a call there is a stream; gRPC's own handlers say so."""

    @property
    def request_streaming(self) -> bool:
        """Whether requests are a stream."""
        ...

    @property
    def response_streaming(self) -> bool:
        """Whether answers are."""
        ...


class Passing(Protocol):
    """Passes calls on to the servers that own or follow their learners. Messages stay the bytes that came."""

    def streams(self, method: str) -> bool:
        """Whether calls of a method whose requests are a stream may be passed on, by what their first message says."""
        ...

    async def unary(self, method: str, request: Any, data: bytes, context: Any) -> bytes | None:
        """The answer of another server; None: it is ours to give."""
        ...

    async def streamed(self, method: str, request: Any, data: bytes, context: Any, kind: StreamKind) -> bytes | None:
        """The same for a call with a stream on a side, whose only or first request this is.

        Where answers are a stream, they were written, and b"" is given.
        """
        ...


class FirstRead:
    """The context of a call whose first request was read already: `read` gives it first."""

    def __init__(self, context: Any, first: Any, parse: Any) -> None:
        self._context, self._first, self._parse = context, first, parse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """The next message, or EOF."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        data = await self._context.read()
        return data if data is grpc.aio.EOF else self._parse(data)


def unreachable(learner: str, owner: str = "") -> RpcError:
    """The refusal where nobody who could answer can be reached; nothing was sent."""
    message = "no server owns the learner right now" if not owner else "the server that owns the learner is away"
    return RpcError("OWNER_UNREACHABLE", message, retry=0.5, learner=learner, owner=owner or None)
