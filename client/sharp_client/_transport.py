"""How messages are sent: over gRPC, or whatever a test uses instead."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol

import grpc

from . import _calls
from ._errors import SharpError
from ._failures import error_of_call
from ._options import Limits, Tls, Token, is_loopback
from ._owners import Owners, learner_of


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

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> MessageStream:
        """One request or an iterator of requests, many answers. Returns at once.

        `learner`: the one that an iterator of requests is about.
        """

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

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> AsyncMessageStream:
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
        # A server that moved to another address is found again as soon as its name says so, not half a minute later.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # While a call is open. Servers allow a ping every ten seconds; a machine that is cut off says nothing itself.
        ("grpc.keepalive_time_ms", 12_000),
        ("grpc.keepalive_timeout_ms", 5_000),
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


class _Server:
    """A connection to one server."""

    def __init__(self, address: str, tls: Tls | None, limits: Limits) -> None:
        options = channel_options(limits, tls)
        if tls is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, tls.credentials(), options)
        self.methods: Mapping[str, Any] = _calls.methods(self.channel)
        self._state: grpc.ChannelConnectivity | None = None

    def connect(self) -> None:
        """Begin to connect, and stay connected."""
        self.channel.subscribe(self._changed, try_to_connect=True)

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state

    @property
    def connected(self) -> bool:
        """Whether there is a connection, since `connect`."""
        return self._state is grpc.ChannelConnectivity.READY


class GrpcTransport:
    """Calls over a gRPC channel, and directly to owners of learners. Safe to use from several threads."""

    def __init__(self, address: str, token: Token, tls: Tls | None, limits: Limits, insecure: bool = False) -> None:
        self._configured = _Server(address, tls, limits)
        self._token, self._tls, self._limits = token, tls, limits
        self._owners = Owners(token, tls, insecure)
        self._servers: dict[str, _Server] = {}
        """Of owners, by address."""
        self._lock = threading.Lock()

    def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        learner = learner_of(method, request, "")
        server = self._server(learner)
        try:
            if not learner:
                return server.methods[method](request, timeout=timeout, metadata=self._token.metadata())
            answer, call = server.methods[method].with_call(request, timeout=timeout, metadata=self._token.metadata())
        except grpc.RpcError as failed:
            raise self._error(learner, failed) from failed
        self._take(learner, call.initial_metadata())
        return answer

    def client_stream(self, method: str, requests: Iterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return self.unary(method, requests, timeout)

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> MessageStream:
        """Many answers."""
        learner = learner_of(method, requests, learner)
        call = self._server(learner).methods[method](requests, timeout=timeout, metadata=self._token.metadata())
        return _GrpcStream(call, lambda metadata: self._take(learner, metadata), lambda e: self._error(learner, e))

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for server in (self._configured, *self._servers.values()):
                server.channel.close()

    def _server(self, learner: str) -> _Server:
        address = self._owners.address(learner) if learner else None
        owner = self._servers.get(address) if address else None
        return owner if owner is not None and owner.connected else self._configured

    def _take(self, learner: str, metadata: Any) -> None:
        address = self._owners.take(learner, metadata, len(self._servers)) if learner else None
        if address is not None:
            with self._lock:
                if address not in self._servers:
                    self._servers[address] = _Server(address, self._tls, self._limits)
                    self._servers[address].connect()

    def _error(self, learner: str, failed: grpc.RpcError) -> SharpError:
        error = error_of_call(failed)
        self._owners.failed(learner, error)
        return error


class _GrpcStream:
    def __init__(self, call: Any, take: Callable[[Any], None], error_of: Callable[[grpc.RpcError], SharpError]) -> None:
        self._call, self._take, self._error_of = call, take, error_of
        self._answered = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            answer = next(self._call)
        except grpc.RpcError as failed:
            raise self._error_of(failed) from failed
        if not self._answered:
            self._answered = True
            self._take(self._call.initial_metadata())
        return answer

    def cancel(self) -> None:
        self._call.cancel()


class _AsyncServer:
    """As _Server, for asyncio."""

    def __init__(self, address: str, tls: Tls | None, limits: Limits) -> None:
        options = channel_options(limits, tls)
        if tls is None:
            self.channel = grpc.aio.insecure_channel(address, options)
        else:
            self.channel = grpc.aio.secure_channel(address, tls.credentials(), options)
        self.methods: Mapping[str, Any] = _calls.methods(self.channel)

    @property
    def connected(self) -> bool:
        """Whether there is a connection; if not, one is begun."""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY


class AsyncGrpcTransport:
    """Calls over channels of `grpc.aio`. Belongs to the event loop it is first used in."""

    def __init__(self, address: str, token: Token, tls: Tls | None, limits: Limits, insecure: bool = False) -> None:
        self._address, self._token, self._tls, self._limits = address, token, tls, limits
        self._owners = Owners(token, tls, insecure)
        self._configured: _AsyncServer | None = None
        self._servers: dict[str, _AsyncServer] = {}
        """Of owners, by address."""

    async def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        learner = learner_of(method, request, "")
        call = self._server(learner).methods[method](request, timeout=timeout, metadata=self._token.metadata())
        try:
            answer = await call
            if learner:
                self._take(learner, await call.initial_metadata())
        except grpc.RpcError as failed:
            raise self._error(learner, failed) from failed
        return answer

    async def client_stream(self, method: str, requests: AsyncIterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return await self.unary(method, requests, timeout)

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> AsyncMessageStream:
        """Many answers."""
        learner = learner_of(method, requests, learner)
        call = self._server(learner).methods[method](requests, timeout=timeout, metadata=self._token.metadata())
        return _AsyncGrpcStream(call, lambda metadata: self._take(learner, metadata), lambda e: self._error(learner, e))

    async def close(self) -> None:
        """End everything."""
        for server in (self._configured, *self._servers.values()):
            if server is not None:
                with contextlib.suppress(Exception):
                    await server.channel.close()

    def _server(self, learner: str) -> _AsyncServer:
        address = self._owners.address(learner) if learner else None
        owner = self._servers.get(address) if address else None
        if owner is not None and owner.connected:
            return owner
        if self._configured is None:
            self._configured = _AsyncServer(self._address, self._tls, self._limits)
        return self._configured

    def _take(self, learner: str, metadata: Any) -> None:
        address = self._owners.take(learner, metadata, len(self._servers)) if learner else None
        if address is not None and address not in self._servers:
            self._servers[address] = _AsyncServer(address, self._tls, self._limits)
            self._servers[address].channel.get_state(try_to_connect=True)

    def _error(self, learner: str, failed: grpc.RpcError) -> SharpError:
        error = error_of_call(failed)
        self._owners.failed(learner, error)
        return error


class _AsyncGrpcStream:
    def __init__(self, call: Any, take: Callable[[Any], None], error_of: Callable[[grpc.RpcError], SharpError]) -> None:
        self._call, self._take, self._error_of = call, take, error_of
        self._answers = call.__aiter__()
        self._answered = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            answer = await self._answers.__anext__()
            if not self._answered:
                self._answered = True
                self._take(await self._call.initial_metadata())
        except grpc.RpcError as failed:
            raise self._error_of(failed) from failed
        return answer

    def cancel(self) -> None:
        self._call.cancel()
