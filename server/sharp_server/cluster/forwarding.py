"""Calls find their owner: any server takes any call, and passes on what another one should answer.

Messages are passed on as the bytes that came; only the first of a call is parsed, for the name of its learner. Metadata
with the token, the deadline, and status, details and trailers go through unchanged. A call is passed on once: a server
that gets one and is not the owner says NOT_OWNER rather than sending it round. What is answered by another server
names it in the metadata, so that our client goes there directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import grpc
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]

from sharp.v1 import admin_pb2_grpc, learner_admin_pb2, learner_pb2, prediction_pb2, prediction_pb2_grpc
from sharp_server.api.passing import PassedOnError, StreamKind, unreachable
from sharp_server.cluster.directory import Directory
from sharp_server.cluster.peers import Peers
from sharp_server.errors import RpcError
from sharp_server.learners.registry import Registry
from sharp_server.storage.board import Place

log = logging.getLogger(__name__)

OWNER_KEY = "sharp-owner"
"""In the initial metadata of an answer that another server gave: its address."""
PASSED_ON_KEY = "sharp-passed-on"
"""In the metadata of a call that was passed on."""
_NOT_PASSED_ON = ("grpc-", "user-agent", "te", "content-type", PASSED_ON_KEY)
"""Beginnings of the keys of a call's metadata that belong to the connection."""

_STREAMS = ("/sharp.v1.Learning/Learn", "/sharp.v1.Admin/ImportSnapshot")
_LOCAL = ("/sharp.v1.Admin/GetServerStatus", "/sharp.v1.Admin/ListLearners", "/inference.GRPCInferenceService/Server")
"""Beginnings of the methods that are about the server that is asked."""
_PREDICTIONS = ("/sharp.v1.Prediction/", "/inference.GRPCInferenceService/")
"""Beginnings of the methods that a server which follows the learner answers."""
_PREDICT = "/sharp.v1.Prediction/Predict"
_MOST_LISTED = 1000
_SECONDS_TO_LIST = 5.0
_SECONDS_OF_PATIENCE = 3.0
"""How long a call waits for a learner that is just being taken up, before the client hears that nobody owns it."""
_SECONDS_BETWEEN_LOOKS = 0.05
_RESERVED = ("fields", "retry", "reason", "message")


class Forwarder:
    """Passes calls on; belongs to the event loop."""

    def __init__(self, owned: Registry, readers: Registry, directory: Directory, peers: Peers) -> None:
        """`readers`: learners of which predictions are answered here."""
        self._owned, self._readers, self._directory, self._peers = owned, readers, directory, peers
        self.address = ""
        """This server's own, as others know it, once it is known."""

    def streams(self, method: str) -> bool:
        """Whether calls of a method whose requests are a stream may be passed on."""
        return method in _STREAMS

    async def unary(self, method: str, request: Any, data: bytes, context: Any) -> bytes | None:
        """The answer of another server, or None: it is ours to give."""
        place = await self._elsewhere(method, request, context)
        if place is None:
            return None
        channel = await self._channel(place)
        call: Any = _untyped(channel).unary_unary(method)(data, **_terms(context))
        try:
            answer: bytes = await call
        except grpc.aio.AioRpcError as failed:
            await self._heard(failed)
            raise PassedOnError(failed) from None
        await context.send_initial_metadata(((OWNER_KEY, place.address),))
        return answer

    async def streamed(self, method: str, request: Any, data: bytes, context: Any, kind: StreamKind) -> bytes | None:
        """The same for a call with a stream on a side; answers that are a stream are written as they come."""
        place = await self._elsewhere(method, request, context)
        if place is None:
            return None
        channel = await self._channel(place)
        terms = _terms(context)
        reading: asyncio.Task[None] | None = None
        if not kind.request_streaming:
            call: Any = _untyped(channel).unary_stream(method)(data, **terms)
        else:
            make = channel.stream_stream if kind.response_streaming else channel.stream_unary
            call = make(method)(**terms)
            reading = asyncio.get_running_loop().create_task(_pass_requests(data, context, call))
        try:
            if not kind.response_streaming:
                answer: bytes = await call
                await context.send_initial_metadata(((OWNER_KEY, place.address),))
                return answer
            await call.initial_metadata()
            await context.send_initial_metadata(((OWNER_KEY, place.address),))
            async for response in call:
                await context.write(response)
            return b""
        except grpc.aio.AioRpcError as failed:
            await self._heard(failed)
            raise PassedOnError(failed) from None
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    async def predict(self, request: prediction_pb2.PredictRequest, context: Any) -> Any:
        """The answer of another server to one question of a stream of them, or None: it is ours to give."""
        place = await self._elsewhere(_PREDICT, request, context)
        if place is None:
            return None
        channel = await self._channel(place)
        try:
            return await prediction_pb2_grpc.PredictionStub(channel).Predict(request, **_terms(context))
        except grpc.aio.AioRpcError as failed:
            raise _refusal(failed, place) from None

    async def _elsewhere(self, method: str, request: Any, context: Any) -> Place | None:
        """The server that should answer a call; None: this one."""
        if method.startswith(_LOCAL):
            return None
        predicts, name = method.startswith(_PREDICTIONS), learner_named(request)
        if not name:
            name = self._only() if predicts else ""
        here = self._readers if predicts else self._owned
        patience = time.monotonic() + _SECONDS_OF_PATIENCE
        while True:
            if not name or here.find(name) is not None:
                return None
            place = await self._directory.look_up(name)
            if place is None:
                return None  # there is none of that name: our own service says so, or makes it
            moving = not place.address or place.address == self.address
            if not moving and not was_passed_on(context):
                return place
            if not moving or time.monotonic() > patience:
                break
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        if moving:
            raise unreachable(name)
        raise RpcError("NOT_OWNER", "this server does not own the learner", retry=0.2, owner=place.address)

    def _only(self) -> str:
        """The learner that is meant where none is named, if there is just one in the cluster."""
        names = self._directory.names
        if len(names) > 1:
            raise RpcError(
                "LEARNER_NOT_FOUND", f"there are several learners, name one of them: {', '.join(names[:10])}"
            )
        return names[0] if names else ""

    async def _channel(self, place: Place) -> grpc.aio.Channel:
        channel = await self._peers.channel(place.address)
        if channel is None:
            await self._directory.refresh()
            raise unreachable(place.name, place.address)
        return channel

    async def _heard(self, failed: grpc.aio.AioRpcError) -> None:
        """A server that is the owner no more, or is gone, is looked up again before the client repeats its call."""
        if failed.code() is grpc.StatusCode.UNAVAILABLE:
            await self._directory.refresh()

    async def others(self, metadata: Mapping[str, str | bytes]) -> dict[str, learner_pb2.Learner]:
        """The learners of all other servers by name, for a call with these metadata; of one that is away: none."""
        if PASSED_ON_KEY in metadata:
            return {}
        token = metadata.get("authorization")
        terms = ((PASSED_ON_KEY, "1"), *((("authorization", token),) if token else ()))
        addresses = {place.address for place in self._directory.places} - {"", self.address}
        listed = await asyncio.gather(*(self._listed(address, terms) for address in addresses))
        return {learner.name: learner for learners in listed for learner in learners}

    async def _listed(self, address: str, metadata: Any) -> list[learner_pb2.Learner]:
        channel = await self._peers.channel(address)
        if channel is None:
            return []
        stub, token = admin_pb2_grpc.AdminStub(channel), ""
        found: list[learner_pb2.Learner] = []
        while True:
            request = learner_admin_pb2.ListLearnersRequest(page_size=_MOST_LISTED, page_token=token)
            try:
                answer = await stub.ListLearners(request, timeout=_SECONDS_TO_LIST, metadata=metadata)
            except grpc.aio.AioRpcError as failed:
                log.warning("the learners of %s could not be listed: %s", address, failed.code().name)
                return found
            found.extend(answer.learners)
            token = answer.next_page_token
            if not token:
                return found


def _refusal(failed: grpc.aio.AioRpcError, place: Place) -> RpcError:
    """What another server answered, as a refusal of ours."""
    status = rpc_status.from_call(failed)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.reason:
            metadata = {key: value for key, value in info.metadata.items() if key not in _RESERVED}
            return RpcError(info.reason, failed.details() or "", **metadata)
    return unreachable(place.name, place.address)


def _untyped(channel: grpc.aio.Channel) -> Any:
    """The channel; messages are bytes on both sides, which its types have no word for."""
    return channel


def learner_named(request: Any) -> str:
    """The learner that a request is about; empty: it names none."""
    for part in ("open", "header"):
        inner = getattr(request, part, None)
        if inner is not None:
            request = inner
            break
    for field in ("learner", "name", "model_name"):
        value = getattr(request, field, "")
        if isinstance(value, str) and value:
            return value
    return ""


def was_passed_on(context: Any) -> bool:
    """Whether another server passed a call on."""
    return any(key == PASSED_ON_KEY for key, _ in context.invocation_metadata() or ())


def _terms(context: Any) -> dict[str, Any]:
    """Metadata and deadline of a call, for the same call to another server."""
    given = context.invocation_metadata() or ()
    kept = [(key, value) for key, value in given if not key.startswith(_NOT_PASSED_ON)]
    return {"metadata": ((PASSED_ON_KEY, "1"), *kept), "timeout": context.time_remaining()}


async def _pass_requests(first: bytes, context: Any, call: Any) -> None:
    """Pass on every request of a stream, as it comes, until the client ends it or the call is over."""
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        data: Any = first
        while data is not grpc.aio.EOF:
            await call.write(data)
            data = await context.read()
        await call.done_writing()
