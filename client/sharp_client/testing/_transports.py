"""Transports to the fake: within the process, with and without asyncio, and over a real port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc

from sharp.v1 import admin_pb2, learning_pb2, prediction_pb2

from .._errors import CancelledCallError, SharpError
from .._failures import BY_CODE
from .._status import DETAILS_KEY, StatusDetails, encode

if TYPE_CHECKING:
    from ._server import FakeServer

POLL = 0.02
"""Seconds between two checks of a watched learner."""


def copy(message: Any) -> Any:
    """Send a message through its bytes, as a wire would."""
    return type(message).FromString(message.SerializeToString())


class FakeTransport:
    """For a Client."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        return copy(self._server.unary(method, copy(request)))

    def client_stream(self, method: str, requests: Iterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return copy(self._server.client_stream(method, [copy(request) for request in requests]))

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> FakeMessageStream:
        """Many answers."""
        return FakeMessageStream(self._server, method, requests)

    def close(self) -> None:
        """Nothing to end."""


class FakeMessageStream:
    """The answers of one call."""

    def __init__(self, server: FakeServer, method: str, requests: Any) -> None:
        self._cancelled = False
        self._answers = server.stream(method, requests, lambda: self._cancelled)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        answer = next(self._answers, None) if not self._cancelled else None
        if self._cancelled:
            raise CancelledCallError("the call was cancelled", code="CANCELLED")
        if answer is None:
            raise StopIteration
        return copy(answer)

    def cancel(self) -> None:
        """End the call."""
        self._cancelled = True


class AsyncFakeTransport:
    """For an AsyncClient."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    async def unary(self, method: str, request: Any, timeout: float) -> Any:
        """One request, one answer."""
        await asyncio.sleep(0)
        return copy(self._server.unary(method, copy(request)))

    async def client_stream(self, method: str, requests: AsyncIterator[Any], timeout: float) -> Any:
        """Many requests, one answer."""
        return copy(self._server.client_stream(method, [copy(request) async for request in requests]))

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> AsyncFakeMessageStream:
        """Many answers."""
        return AsyncFakeMessageStream(self._server, method, requests)

    async def close(self) -> None:
        """Nothing to end."""


class AsyncFakeMessageStream:
    """The answers of one call, for asyncio."""

    def __init__(self, server: FakeServer, method: str, requests: Any) -> None:
        self._server, self._cancelled = server, False
        self._answers = self._run(method, requests)

    async def _run(self, method: str, requests: Any) -> AsyncIterator[Any]:
        if hasattr(requests, "__aiter__"):
            handle = self._server.handler(method)
            async for request in requests:
                for answer in handle(copy(request)):
                    yield answer
                    await asyncio.sleep(0)
        elif method == "WatchLearner":
            watch = self._server.watch(copy(requests))
            while not self._cancelled:
                answer = watch()
                if answer is not None:
                    yield answer
                await asyncio.sleep(POLL)
        else:
            for answer in self._server.stream(method, requests, lambda: self._cancelled):
                yield answer

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        answer = copy(await anext(self._answers))
        if self._cancelled:
            raise CancelledCallError("the call was cancelled", code="CANCELLED")
        return answer

    def cancel(self) -> None:
        """End the call."""
        self._cancelled = True


@contextlib.contextmanager
def serving(server: FakeServer, address: str) -> Iterator[str]:
    """Serve on a real port; yields the address."""
    with futures.ThreadPoolExecutor(max_workers=16) as workers:
        port_server = grpc.server(workers, options=[("grpc.so_reuseport", 0)])
        port_server.add_generic_rpc_handlers(tuple(_handlers(server)))
        port = port_server.add_insecure_port(address)
        port_server.start()
        try:
            yield f"{address.rpartition(':')[0]}:{port}"
        finally:
            server.stopping = True
            port_server.stop(0).wait()
            server.stopping = False


def _handlers(server: FakeServer) -> Iterator[Any]:
    for file in (learning_pb2, prediction_pb2, admin_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            methods = {method.name: _handler(server, method) for method in service.methods}
            yield grpc.method_handlers_generic_handler(service.full_name, methods)


def _handler(server: FakeServer, method: Any) -> Any:
    def unary(request: Any, context: grpc.ServicerContext) -> Any:
        return _or_abort(context, lambda: server.unary(method.name, request))

    def client_stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        return _or_abort(context, lambda: server.client_stream(method.name, list(requests)))

    def stream(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        answers = server.stream(method.name, requests, lambda: not context.is_active())
        while (answer := _or_abort(context, lambda: next(answers, None))) is not None:
            yield answer

    reader = {"request_deserializer": method.input_type._concrete_class.FromString}
    writer = {"response_serializer": method.output_type._concrete_class.SerializeToString}
    if method.server_streaming and method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(stream, **reader, **writer)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, **reader, **writer)
    if method.client_streaming:
        return grpc.stream_unary_rpc_method_handler(client_stream, **reader, **writer)
    return grpc.unary_unary_rpc_method_handler(unary, **reader, **writer)


def _or_abort(context: grpc.ServicerContext, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except SharpError as error:
        code = error.code if error.code in BY_CODE else "INTERNAL"
        details = StatusDetails(error.reason, error.metadata, error.retry_delay, error.violations)
        number = grpc.StatusCode[code].value[0]
        context.set_trailing_metadata(((DETAILS_KEY, encode(number, error.message, details)),))
        context.abort(grpc.StatusCode[code], error.message)
