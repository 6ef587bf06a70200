"""The client."""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from sharp.v1 import prediction_pb2

from ._admin import AdminCalls
from ._batching import Backpressure, Boundaries, opening
from ._calls import Attempts
from ._errors import ClosedError, SharpError
from ._learn_stream import LearnStream
from ._learner import Learner
from ._options import Limits, Retry, Timeout, Tls, Token
from ._prediction_stream import PredictionStreamState
from ._requests import predict_requests
from ._results import Prediction, decode_prediction
from ._transport import GrpcTransport, Transport, check_trust


class Client(AdminCalls):
    """A connection to a server of learners. May be shared by threads; `AsyncClient` is the same for asyncio.

    There is one method per RPC, which takes the name of the learner first; `learner(name)` gives a handle that has
    them without the name. Calls that failed before they had an effect are repeated as `retry` says, all within the
    deadline of the call. Failures are raised as a SharpError.

    With a token and no TLS, only addresses on this machine are taken, unless `insecure` is set.
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
        transport: Transport | None = None,
    ) -> None:
        self._timeout = timeout if isinstance(timeout, Timeout) else Timeout(call=timeout) if timeout else Timeout()
        self._retry, self._limits = retry or Retry(), limits or Limits()
        if transport is None:
            bearer = Token(token, token_file)
            check_trust(address, bearer, tls, insecure)
            transport = GrpcTransport(address, bearer, tls, self._limits)
        self.address = address
        self._transport: Transport = transport
        self._streams: weakref.WeakSet[LearnStream] = weakref.WeakSet()
        self._closed = False

    def learner(self, name: str) -> Learner:
        """Give a handle on a learner. Asks the server nothing, so the learner need not be there yet."""
        return Learner(self, name)

    def learn(
        self,
        name: str,
        *,
        stream_id: str | None = None,
        boundaries: Boundaries = "explicit",
        backpressure: Backpressure = "block",
        create: bool = True,
        from_start: bool = False,
    ) -> LearnStream:
        """Open a stream to teach a learner, which is made if it is missing, unless `create` is off.

        Give a `stream_id` of your own to be able to take up the stream from another process: `stream.acknowledged` then
        tells what is durable already. Or run the same job again with `from_start`, sending the same arrays from the
        first one on: what is durable is not sent again, and the reports of its episodes are as before.

        Where episodes end is told by `stream.end_episode()`, or, with "automatic" boundaries, found by the server.
        """
        self._check_open()
        request = opening(name, stream_id or f"python/{uuid.uuid4()}", boundaries, backpressure, create)
        stream = LearnStream(self._transport, request, self._timeout, self._retry, self._limits, from_start)
        self._streams.add(stream)
        return stream

    def predict(
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
        return decode_prediction([self._call("Predict", request, timeout) for request in requests])

    def predict_stream(
        self,
        name: str,
        batches: Iterable[Any],
        *,
        top_k: int = 0,
        nearest_memories: int = 0,
        novelty: bool = False,
        resize: bool = False,
        return_failures: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Prediction | SharpError]:
        """Predict batch after batch over one call, and yield one answer per batch in order.

        A batch that fails is raised, which ends the call, or, with `return_failures`, yielded as the exception it is,
        and the stream goes on.
        """
        self._check_open()

        options = {"top_k": top_k, "nearest_memories": nearest_memories, "novelty": novelty, "resize": resize}
        state = PredictionStreamState(name, self._limits, return_failures, **options)

        def requests() -> Iterator[prediction_pb2.PredictStreamRequest]:
            try:
                for x in batches:
                    yield from state.requests(x)
            except Exception as error:
                state.error = error
                raise

        call = self._transport.stream("PredictStream", requests(), timeout or self._timeout.transfer)
        try:
            for message in call:
                answer = state.receive(message)
                if answer is not None:
                    yield answer
        except SharpError as error:
            raise state.error or error from None
        finally:
            call.cancel()

    def close(self) -> None:
        """End all streams and the connection. What was acknowledged is learned all the same."""
        self._closed = True
        for stream in list(self._streams):
            stream.cancel()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        self._check_open()
        attempts = Attempts(method, self._retry, time.monotonic() + (timeout or self._timeout.call))
        while True:
            try:
                return self._transport.unary(method, request, attempts.time_left())
            except SharpError as error:
                done = attempts.done_before(error)
                if done is not None:
                    return done
                delay = attempts.delay_after(error)
            time.sleep(delay)
