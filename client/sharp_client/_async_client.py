"""The client: a connection to a server, with one method per RPC."""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from sharp.v1 import prediction_pb2

from ._address import read_address
from ._answers import LearnerConfig, TeachResult
from ._async_admin import AsyncAdminCalls
from ._async_learn_stream import AsyncLearnStream
from ._async_learner import AsyncLearner
from ._async_runtime import CALL_FAILURES, Batches, each, sleep
from ._batching import Backpressure, Boundaries, opening
from ._calls import Attempts
from ._errors import ClosedError, SharpError
from ._options import Limits, Retry, Timeout, Tls, Token
from ._prediction_stream import PredictionStreamState
from ._requests import predict_requests, teach_request
from ._results import Prediction, decode_prediction
from ._stream_view import StreamOptions
from ._transport import AsyncGrpcTransport, AsyncTransport, check_trust


class AsyncClient(AsyncAdminCalls):
    """A connection to a server of learners. `Client` may be shared by threads; `AsyncClient` is the same for asyncio.

    There is one method per RPC, which takes the name of the learner first; `learner(name)` gives a handle that has
    them without the name. Calls that failed before they had an effect are repeated as `retry` says, all within the
    deadline of the call. Failures are raised as a SharpError.

    An address is `host:port`, or `host` for port 50051; `https://host` asks for TLS. With a token and no TLS, only
    addresses on this machine are accepted, unless `insecure` is set.
    """

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
            found = read_address(address)
            address = found.target
            tls = Tls() if found.tls and tls is None else tls
            bearer = Token(token, token_file)
            check_trust(address, bearer, tls, insecure)
            transport = AsyncGrpcTransport(address, bearer, tls, self._limits, insecure)
        self.address = address
        self._transport: AsyncTransport = transport
        self._streams: weakref.WeakSet[AsyncLearnStream] = weakref.WeakSet()
        self._closed = False

    def learner(self, name: str | None = None) -> AsyncLearner:
        """Get a handle on a learner. Nothing is sent, so the learner need not exist yet.

        Without a name, predictions ask the only learner that the server has.
        """
        return AsyncLearner(self, name)

    def learn(
        self,
        name: str,
        *,
        stream_id: str | None = None,
        boundaries: Boundaries = "explicit",
        backpressure: Backpressure = "block",
        create: bool | LearnerConfig = True,
        from_start: bool = False,
    ) -> AsyncLearnStream:
        """Open a stream to teach a learner, which is created if it is missing, unless `create` is off.

        Give a LearnerConfig as `create` to say how; a learner that is there already must agree with it.

        Use it in a `with` block, or `async with` for `AsyncClient`. Give a `stream_id` of your own to be able to resume
        the stream from another process: `stream.acknowledged` is then what is durable already. Or run the same job
        again with `from_start`, sending the same arrays from the first one on: what is durable is not sent again, and
        the reports of its episodes are as before.

        Episodes end at `stream.end_episode()`, or, with "automatic" boundaries, where the server finds a change.
        """
        self._check_open()
        request = opening(name, stream_id or f"python/{uuid.uuid4()}", boundaries, backpressure, create)
        options = StreamOptions(request, self._timeout, self._retry, self._limits, from_start)
        stream = AsyncLearnStream(self._transport, options)
        self._streams.add(stream)
        return stream

    async def teach(
        self,
        name: str,
        x: Any,
        y: Any,
        *,
        request_id: str | None = None,
        create: bool = True,
        resize: bool = False,
        timeout: float | None = None,
    ) -> TeachResult:
        """Teach a few labelled examples at once; see `Learner.teach`."""
        chosen = request_id or f"python/{uuid.uuid4()}"
        request = teach_request(name, x, y, chosen, create=create, resize=resize, limits=self._limits)
        return TeachResult.decode(await self._call("Teach", request, timeout))

    async def predict(
        self,
        name: str,
        x: Any,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        min_model_version: int = 0,
        min_examples: int = 0,
        resize: bool = False,
        timeout: float | None = None,
    ) -> Prediction:
        """Predict the class of each example; see `Learner.predict`. An empty name: the only learner there is."""
        requests = predict_requests(
            name,
            x,
            self._limits,
            top_k=top_k,
            nearest_memories=nearest_memories,
            novelty=novelty,
            min_model_version=min_model_version,
            min_examples=min_examples,
            resize=resize,
        )
        return decode_prediction([await self._call("Predict", request, timeout) for request in requests])

    async def predict_stream(
        self,
        name: str,
        batches: Batches,
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        resize: bool = False,
        return_failures: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[Prediction | SharpError]:
        """Predict batch after batch over one call, and yield one answer per batch in order.

        A batch that fails is raised, which ends the call, or, with `return_failures`, yielded as the exception it is,
        and the stream continues.
        """
        self._check_open()

        options = {"top_k": top_k, "nearest_memories": nearest_memories, "novelty": novelty, "resize": resize}
        state = PredictionStreamState(name, self._limits, return_failures, **options)

        async def requests() -> AsyncIterator[prediction_pb2.PredictStreamRequest]:
            try:
                async for x in each(batches):
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
        except CALL_FAILURES as error:
            raise state.error or error from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all streams and the connection. What was acknowledged is learned nevertheless."""
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
            await sleep(delay)
