"""What every RPC passes through, whatever its service: access, readiness, bounds on streams, error answers, counting.

Services register here instead of with the server, so none can be reached around it. An exception leaves as the status
that the error table gives it, and as nothing else. No byte of a message is parsed before its call was let in.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status  # type: ignore[import-untyped]

from sharp_server.api.auth import ANY_ROLE, Tokens, role_of
from sharp_server.api.errors import answer_for
from sharp_server.errors import RpcError
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.server_state import ServerState, not_ready

log = logging.getLogger(__name__)

_ALWAYS = ("/sharp.v1.Admin/GetServerStatus", "/inference.GRPCInferenceService/ServerReady",
           "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerMetadata")  # fmt: skip
"""What is answered while the server starts and stops."""

Parser = Callable[[bytes], Any]

_QUIET_SECONDS = 0.2
"""No call for this long after the signal: those that were on their way have arrived."""


class Guard:
    """Collects the handlers of services and registers them, wrapped, with the real server."""

    def __init__(
        self, server: grpc.aio.Server, state: ServerState, metrics: Metrics, stream_limit: int, tokens: Tokens | None
    ) -> None:
        self._server, self._state, self._metrics, self._tokens = server, state, metrics, tokens
        self._stream_limit = stream_limit
        self._streams = 0
        self._endless = 0
        """Those of them that nobody waits for at the end: watchers of health, readers of reflection."""
        self._unary_calls = 0
        self._last_call = 0.0

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

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Called by generated code; the registered handlers do the same and are the ones that count."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Called by generated code with the handlers of a service."""
        wrapped = {name: self._wrapped(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service, wrapped)
        generic = grpc.method_handlers_generic_handler(service, wrapped)
        self._server.add_generic_rpc_handlers((generic,))

    def _wrapped(self, method: str, handler: Any) -> Any:
        role = role_of(method)
        parse = _parser(handler.request_deserializer)
        if not handler.request_streaming and not handler.response_streaming:
            behaviour = self._unary(method, role, handler.unary_unary, parse)
            return grpc.unary_unary_rpc_method_handler(behaviour, None, handler.response_serializer)
        inner = next(
            getattr(handler, kind)
            for kind in ("unary_stream", "stream_unary", "stream_stream")
            if getattr(handler, kind) is not None
        )
        # A stream's messages are parsed as they are read, by the service; a single one by us.
        own, transport = (None, parse) if handler.request_streaming else (parse, None)
        behaviour = self._streamed(method, role, inner, handler.response_streaming, own)
        make = {
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[bool(handler.request_streaming), bool(handler.response_streaming)]
        return make(behaviour, transport, handler.response_serializer)

    def _unary(self, method: str, role: str | None, inner: Callable[..., Any], parse: Parser) -> Callable[..., Any]:
        state, tokens = self._state, self._tokens
        open_always = method in _ALWAYS or role is None
        succeeded = self._metrics.requests.labels(method, "OK")

        async def call(data: bytes, context: Any) -> Any:
            request = None
            self._unary_calls += 1
            try:
                if tokens is not None and role is not None:
                    tokens.check(role, _authorization(context))
                if not state.serving:
                    self._last_call = time.monotonic()
                    if not open_always:
                        raise not_ready(state.stage)
                request = parse(data)
                response = await inner(request, context)
            except Exception as error:
                await self._abort(method, error, request, context)
            finally:
                self._unary_calls -= 1
            succeeded.inc()
            return response

        return call

    def _streamed(
        self, method: str, role: str | None, inner: Callable[..., Any], responds: bool, parse: Parser | None
    ) -> Callable[..., Any]:
        state, limit = self._state, self._stream_limit
        foreign = role in (None, ANY_ROLE)  # not of our own services: answered in every state, waited for by nobody
        generator = inspect.isasyncgenfunction(inner)

        async def call(request: Any, context: Any) -> Any:
            counted = False
            try:
                if self._tokens is not None and role is not None:
                    self._tokens.check(role, _authorization(context))
                if not state.serving and not foreign:
                    raise not_ready(state.stage)
                if self._streams >= limit:
                    raise RpcError("TOO_MANY_STREAMS", f"{limit} streams are open already", limit=limit)
                self._streams += 1
                counted = True
                self._endless += foreign
                if parse is not None:
                    request = parse(request)
                if generator:
                    async for response in inner(request, context):
                        await context.write(response)
                    result = None
                else:
                    result = await inner(request, context)
            except Exception as error:
                await self._abort(method, error, request, context)
            finally:
                self._streams -= counted
                self._endless -= counted and foreign
            self._metrics.requests.labels(method, "OK").inc()
            return result if not responds else None

        return call

    async def _abort(self, method: str, error: Exception, request: Any, context: Any) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if context.done():  # the client has gone: nobody reads the status
            raise asyncio.CancelledError
        name = ""
        for field in ("learner", "name", "model_name"):
            value = getattr(request, field, "")
            if isinstance(value, str) and value:
                name = value
                break
        answer = answer_for(error, name)
        self._metrics.requests.labels(method, answer.code.name).inc()
        await context.abort_with_status(rpc_status.to_status(answer.status()))


def _parser(parse: Parser) -> Parser:
    """Parse a message, or refuse the call: gRPC by itself would answer UNKNOWN and log a stack trace."""

    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            message = "the message is not of the type that the method takes"
            raise RpcError("FIELD_INVALID", message, fields=("message",), field="message") from None

    return parsed


def _authorization(context: Any) -> str | bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            found: str | bytes = value
            return found
    return None
