"""What every RPC passes through, whatever its service: admission, error answers, counting.

Services register here instead of with the server, so none can be reached around it. An exception leaves as the status
that the error table gives it, and as nothing else. No byte of a message is parsed before its call was let in.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status  # type: ignore[import-untyped]

from sharp_server.api.admission import Admission
from sharp_server.api.auth import ANY_ROLE, role_of
from sharp_server.api.errors import answer_for
from sharp_server.api.passing import FirstRead, PassedOnError, Passing
from sharp_server.errors import RpcError
from sharp_server.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_ALWAYS = ("/sharp.v1.Admin/GetServerStatus", "/inference.GRPCInferenceService/ServerReady",
           "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerMetadata")  # fmt: skip
"""What is answered while the server starts and stops."""

Parser = Callable[[bytes], Any]


class Guard:
    """Collects the handlers of services and registers them, wrapped, with the real server."""

    def __init__(
        self, server: grpc.aio.Server, metrics: Metrics, admission: Admission, passing: Passing | None = None
    ) -> None:
        self._server, self._metrics, self._admission, self._passing = server, metrics, admission, passing

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
        serialize = handler.response_serializer if self._passing is None else _serializer(handler.response_serializer)
        if not handler.request_streaming and not handler.response_streaming:
            behaviour = self._unary(method, role, handler.unary_unary, parse)
            return grpc.unary_unary_rpc_method_handler(behaviour, None, serialize)
        inner = next(
            getattr(handler, kind)
            for kind in ("unary_stream", "stream_unary", "stream_stream")
            if getattr(handler, kind) is not None
        )
        # A stream's messages are parsed as they are read, by the service; a single one by us.
        own, transport = (None, parse) if handler.request_streaming else (parse, None)
        passing = self._passing
        if passing is not None and (passing.streams(method) if handler.request_streaming else role is not None):
            inner = _or_passed_on(passing, method, inner, handler, parse)
            own = transport = None
        behaviour = self._streamed(method, role, inner, handler.response_streaming, own)
        make = {
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[bool(handler.request_streaming), bool(handler.response_streaming)]
        return make(behaviour, transport, serialize)

    def _unary(self, method: str, role: str | None, inner: Callable[..., Any], parse: Parser) -> Callable[..., Any]:
        admission = self._admission
        open_always = method in _ALWAYS or role is None
        # Reading a call's metadata takes gRPC several microseconds: only where a token may be in it.
        asks_for_token = admission.asks_for_tokens and role is not None
        succeeded = self._metrics.requests.labels(method, "OK")
        passing = self._passing if role is not None else None

        async def call(data: bytes, context: Any) -> Any:
            request = None
            admission.begin_call()
            try:
                admission.check(role, _authorization(context) if asks_for_token else None, open_always)
                request = parse(data)
                response = None if passing is None else await passing.unary(method, request, data, context)
                if response is None:
                    response = await inner(request, context)
            except Exception as error:
                await self._abort(method, error, request, context)
            finally:
                admission.end_call()
            succeeded.inc()
            return response

        return call

    def _streamed(
        self, method: str, role: str | None, inner: Callable[..., Any], responds: bool, parse: Parser | None
    ) -> Callable[..., Any]:
        admission = self._admission
        foreign = role in (None, ANY_ROLE)  # not of our own services: answered in every state, waited for by nobody
        generator = inspect.isasyncgenfunction(inner)

        async def call(request: Any, context: Any) -> Any:
            try:
                admission.check(role, _authorization(context), foreign)
                with admission.stream(endless=foreign):
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
            self._metrics.requests.labels(method, "OK").inc()
            return result if not responds else None

        return call

    async def _abort(self, method: str, error: Exception, request: Any, context: Any) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if context.done():  # the client has gone: nobody reads the status
            raise asyncio.CancelledError
        if isinstance(error, PassedOnError):
            self._metrics.requests.labels(method, error.code.name).inc()
            await context.abort(error.code, error.details, error.trailers)
        name = ""
        for field in ("learner", "name", "model_name"):
            value = getattr(request, field, "")
            if isinstance(value, str) and value:
                name = value
                break
        answer = answer_for(error, name)
        self._metrics.requests.labels(method, answer.code.name).inc()
        await context.abort_with_status(rpc_status.to_status(answer.status()))


def _serializer(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Write a message; an answer that was passed on is bytes already."""
    return lambda message: message if isinstance(message, bytes) else serialize(message)


def _or_passed_on(
    passing: Passing, method: str, inner: Callable[..., Any], handler: Any, parse: Parser
) -> Callable[..., Any]:
    """The behaviour of a call with a stream on a side, which another server may answer: its first request decides."""
    generator = inspect.isasyncgenfunction(inner)

    async def call(request: Any, context: Any) -> Any:
        data = await context.read() if handler.request_streaming else request
        if data is grpc.aio.EOF:
            return await inner(request, FirstRead(context, grpc.aio.EOF, parse))
        first = parse(data)
        answer = await passing.streamed(method, first, data, context, handler)
        if answer is not None:
            return answer or None
        if handler.request_streaming:
            return await inner(request, FirstRead(context, first, parse))
        if not generator:
            return await inner(first, context)
        async for response in inner(first, context):
            await context.write(response)
        return None

    return call


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
