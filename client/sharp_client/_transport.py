"""How messages are sent: over gRPC, or whatever a test uses instead."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

import grpc

from . import _calls
from ._failures import error_of_call
from ._options import Limits, Tls, Token, is_loopback


class MessageStream(Protocol):
    """The answers of a call as they arrive; raises a SharpError if the call fails."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def cancel(self) -> None:
        """End the call at once. Harmless if it has ended. May come from another thread."""


class Transport(Protocol):
    """What a Client needs. `method` is the name of an RPC, `timeout` in seconds; failures are SharpErrors."""

    def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""

    def client_stream(self, method: str, requests: Iterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""

    def stream(self, method: str, requests: Any, timeout: float | None) -> MessageStream:
        """One request or an iterator of requests, many answers. Returns at once."""

    def close(self) -> None:
        """End everything."""


class AsyncMessageStream(Protocol):
    """As MessageStream, for asyncio."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    async def __anext__(self) -> Any: ...

    def cancel(self) -> None:
        """End the call at once."""


class AsyncTransport(Protocol):
    """What an AsyncClient needs; as Transport."""

    async def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""

    async def client_stream(self, method: str, requests: AsyncIterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""

    def stream(self, method: str, requests: Any, timeout: float | None) -> AsyncMessageStream:
        """One request or an iterator of requests, many answers."""

    async def close(self) -> None:
        """End everything."""


def channel_options(limits: Limits, tls: Tls | None) -> list[tuple[str, Any]]:
    """Settings of a channel: our own retries, quick reconnection, pings that find a dead peer."""
    options: list[tuple[str, Any]] = [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),  # a client that can't connect must not slow down others
        ("grpc.max_receive_message_length", limits.receive_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    if tls is not None and tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def check_trust(address: str, token: Token, tls: Tls | None, insecure: bool) -> None:
    """Refuse to send a token unencrypted to another machine."""
    if token and tls is None and not insecure and not is_loopback(address):
        raise ValueError(
            f"a token would go unencrypted to {address}: give tls=Tls(...), or insecure=True if the network is safe"
        )


class GrpcTransport:
    """Calls over a gRPC channel. Safe to use from several threads."""

    def __init__(self, address: str, token: Token, tls: Tls | None, limits: Limits) -> None:
        options = channel_options(limits, tls)
        if tls is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, tls.credentials(), options)
        self._token = token
        self._methods: Mapping[str, Any] = _calls.methods(self._channel)

    def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        try:
            return self._methods[method](request, timeout=timeout, metadata=self._token.metadata())
        except grpc.RpcError as failed:
            raise error_of_call(failed) from failed

    def client_stream(self, method: str, requests: Iterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return self.unary(method, requests, timeout)

    def stream(self, method: str, requests: Any, timeout: float | None) -> MessageStream:
        """Many answers."""
        return _GrpcStream(self._methods[method](requests, timeout=timeout, metadata=self._token.metadata()))

    def close(self) -> None:
        """End everything."""
        self._channel.close()


class _GrpcStream:
    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as failed:
            raise error_of_call(failed) from failed

    def cancel(self) -> None:
        self._call.cancel()


class AsyncGrpcTransport:
    """Calls over a channel of `grpc.aio`. Belongs to the event loop it is first used in."""

    def __init__(self, address: str, token: Token, tls: Tls | None, limits: Limits) -> None:
        options = channel_options(limits, tls)
        self._address, self._tls, self._options = address, tls, options
        self._token = token
        self._channel: Any = None
        self._calls: Mapping[str, Any] = {}

    def _method(self, name: str) -> Any:
        if self._channel is None:
            if self._tls is None:
                self._channel = grpc.aio.insecure_channel(self._address, self._options)
            else:
                self._channel = grpc.aio.secure_channel(self._address, self._tls.credentials(), self._options)
            self._calls = _calls.methods(self._channel)
        return self._calls[name]

    async def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        try:
            return await self._method(method)(request, timeout=timeout, metadata=self._token.metadata())
        except grpc.RpcError as failed:
            raise error_of_call(failed) from failed

    async def client_stream(self, method: str, requests: AsyncIterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return await self.unary(method, requests, timeout)

    def stream(self, method: str, requests: Any, timeout: float | None) -> AsyncMessageStream:
        """Many answers."""
        return _AsyncGrpcStream(self._method(method)(requests, timeout=timeout, metadata=self._token.metadata()))

    async def close(self) -> None:
        """End everything."""
        if self._channel is not None:
            with contextlib.suppress(Exception):
                await self._channel.close()


class _AsyncGrpcStream:
    def __init__(self, call: Any) -> None:
        self._call = call
        self._answers = call.__aiter__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._answers.__anext__()
        except grpc.RpcError as failed:
            raise error_of_call(failed) from failed

    def cancel(self) -> None:
        self._call.cancel()
