"""The client, for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

from sharp.v1 import prediction_pb2

from ._async_admin import AsyncAdminCalls
from ._async_learn_stream import AsyncLearnStream
from ._async_learner import AsyncLearner
from ._batching import Backpressure, Boundaries, opening
from ._calls import Attempts
from ._errors import ClosedError, SharpError
from ._options import Limits, Retry, Timeout, Tls, Token
from ._prediction_stream import PredictionStreamState
from ._requests import predict_requests
from ._results import Prediction, decode_prediction
from ._transport import AsyncGrpcTransport, AsyncTransport, check_trust


class AsyncClient(AsyncAdminCalls):
    """A connection to a server of learners, for asyncio; `Client` is the same for threads and says more."""

    def __init__(
        self,
        address: str = "localhost:50051",
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
        timeout: Timeout | float | None = None,
        retry: Retry | None = None,
        limits: Limits | None = None,
        transport: AsyncTransport | None = None,
    ) -> None:
        self._timeout = timeout if isinstance(timeout, Timeout) else Timeout(call=timeout) if timeout else Timeout()
        self._retry, self._limits = retry or Retry(), limits or Limits()
        if transport is None:
            bearer = Token(token, token_file)
            check_trust(address, bearer, tls, insecure)
            transport = AsyncGrpcTransport(address, bearer, tls, self._limits)
        self.address = address
        self._transport: AsyncTransport = transport
        self._streams: weakref.WeakSet[AsyncLearnStream] = weakref.WeakSet()
        self._closed = False

    def learner(self, name: str) -> AsyncLearner:
        """Give a handle on a learner. Asks the server nothing, so the learner need not be there yet."""
        return AsyncLearner(self, name)

    def learn(
        self,
        name: str,
        *,
        stream_id: str | None = None,
        boundaries: Boundaries = "explicit",
        backpressure: Backpressure = "block",
        create: bool = True,
        from_start: bool = False,
    ) -> AsyncLearnStream:
        """Open a stream to teach a learner: `async with client.learn(name) as stream`. See `Client.learn`."""
        self._check_open()
        request = opening(name, stream_id or f"python/{uuid.uuid4()}", boundaries, backpressure, create)
        stream = AsyncLearnStream(self._transport, request, self._timeout, self._retry, self._limits, from_start)
        self._streams.add(stream)
        return stream

    async def predict(
        self,
        name: str,
        x: Any,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        min_model_version: int = 0,
        resize: bool = False,
        timeout: float | None = None,
    ) -> Prediction:
        """Predict the class of each example; see `Learner.predict`."""
        requests = predict_requests(
            name,
            x,
            self._limits,
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            min_model_version=min_model_version,
            resize=resize,
        )
        return decode_prediction([await self._call("Predict", request, timeout) for request in requests])

    async def predict_stream(
        self,
        name: str,
        batches: Iterable[Any] | AsyncIterable[Any],
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        resize: bool = False,
        return_failures: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[Prediction | SharpError]:
        """Predict batch after batch over one call; see `Client.predict_stream`."""
        self._check_open()

        options = {"top_k": top_k, "nearest_memories": nearest_memories, "novelty": novelty, "resize": resize}
        state = PredictionStreamState(name, self._limits, return_failures, **options)

        async def requests() -> AsyncIterator[prediction_pb2.PredictStreamRequest]:
            try:
                async for x in _each(batches):
                    for request in state.requests(x):
                        yield request
            except Exception as error:
                state.error = error
                raise

        call = self._transport.stream("PredictStream", requests(), timeout or self._timeout.transfer)
        try:
            async for message in call:
                answer = state.receive(message)
                if answer is not None:
                    yield answer
        except (SharpError, asyncio.CancelledError) as error:
            raise state.error or error from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all streams and the connection. What was acknowledged is learned all the same."""
        self._closed = True
        for stream in list(self._streams):
            await stream.cancel()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")

    async def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        self._check_open()
        attempts = Attempts(method, self._retry, time.monotonic() + (timeout or self._timeout.call))
        while True:
            try:
                return await self._transport.unary(method, request, attempts.time_left())
            except SharpError as error:
                done = attempts.done_before(error)
                if done is not None:
                    return done
                delay = attempts.delay_after(error)
            await asyncio.sleep(delay)


async def _each(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
