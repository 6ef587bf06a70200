"""The fake server: what each method does."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from sharp.v1 import (
    admin_pb2,
    errors_pb2,
    learner_admin_pb2,
    learner_pb2,
    prediction_pb2,
    server_pb2,
)

from .._async_client import AsyncClient
from .._client import Client
from .._errors import MessageTooLargeError, SharpError
from .._failures import canonical_code
from .._reasons import LearnerExistsError, LearnerNotFoundError
from ._admin import AdminMethods
from ._learner import FakeLearner
from ._learning import LearnCall
from ._lessons import teach
from ._prediction import predict
from ._refusals import refuse
from ._transports import POLL, AsyncFakeTransport, FakeTransport, copy, serving


class FakeServer(AdminMethods):
    """A server of learners within the process. May be shared by any number of clients, threads and event loops."""

    def __init__(self, *, message_bytes_limit: int = 4 * 2**20, batch_examples_limit: int = 1024) -> None:
        self.message_bytes_limit, self.batch_examples_limit = message_bytes_limit, batch_examples_limit
        self.learners: dict[str, FakeLearner] = {}
        self.weights: dict[str, bytes] = {}
        self.calls: list[tuple[str, Any]] = []
        """Every request received, with its method."""
        self.stopping = False
        self._lock = threading.RLock()
        self._change = 0
        self._failures: dict[str, deque[SharpError]] = defaultdict(deque)
        self._learn_faults: deque[str] = deque()

    # For the test.

    def client(self, **options: Any) -> Client:
        """Make a client; options as those of Client."""
        return Client("fake:0", transport=FakeTransport(self), **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """Make a client for asyncio; options as those of AsyncClient."""
        return AsyncClient("fake:0", transport=AsyncFakeTransport(self), **options)

    def serve(self, address: str = "localhost:0") -> contextlib.AbstractContextManager[str]:
        """Serve on a real port too: `with server.serve() as address`."""
        return serving(self, address)

    def fail_next(self, method: str, error: SharpError, times: int = 1) -> None:
        """Let the next calls of a method (as in "Predict") fail. Without a code, the error gets that of its reason."""
        if not error.code and error.reason:
            error = refuse(type(error), error.message, **error.metadata)
        self._failures[method].extend([error] * times)

    def break_learn(self, after: int = 0, *, lose_answer: bool = False) -> None:
        """Break the connection of a learn stream after so many more messages.

        The next message is lost; with `lose_answer` it is handled, and the answer is lost. Calls add up.
        """
        self._learn_faults.extend(["none"] * after + ["answer lost" if lose_answer else "lost"])

    # For the transports.

    def next_learn_fault(self) -> str:
        """Decide what happens to the next message of a learn stream."""
        return self._learn_faults.popleft() if self._learn_faults else "none"

    def changed(self) -> None:
        """Wake the watchers."""
        self._change += 1

    def unary(self, method: str, request: Any) -> Any:
        """Answer one request."""
        with self._lock:
            self._arrive(method, request)
            try:
                if method == "Teach":
                    answer = teach(self, request)
                    self.changed()
                    return answer
                if method == "Predict":
                    return predict(self.named_or_only(request.learner), request, self.batch_examples_limit)
                answer = getattr(self, f"do_{method}")(request)
            except SharpError as error:
                learner = getattr(request, "learner", "")
                if error.reason and learner:
                    error.metadata = {"learner": learner, **error.metadata}
                raise
            self.changed()
            return answer

    def client_stream(self, method: str, requests: list[Any]) -> Any:
        """Answer many requests."""
        with self._lock:
            for request in requests:
                self._arrive(method, request)
            answer = getattr(self, f"do_{method}")(requests)
            self.changed()
            return answer

    def handler(self, method: str) -> Callable[[Any], list[Any]]:
        """Make the function that answers the requests of one call of Learn or PredictStream, one at a time."""
        handle = LearnCall(self).handle if method == "Learn" else self._predict_one

        def locked(request: Any) -> list[Any]:
            with self._lock:
                self._arrive(method, request)
                answers: list[Any] = handle(request)
                return answers

        return locked

    def stream(self, method: str, requests: Any, cancelled: Callable[[], bool]) -> Iterator[Any]:
        """Answer a call with many answers."""
        if method == "WatchLearner":
            watch = self.watch(requests)
            while not cancelled() and not self.stopping:
                answer = watch()
                if answer is not None:
                    yield answer
                threading.Event().wait(POLL)
        elif method == "ExportSnapshot":
            with self._lock:
                self._arrive(method, requests)
                parts = list(self.do_ExportSnapshot(requests))
            yield from parts
        else:
            handle = self.handler(method)
            for request in requests:
                if cancelled():
                    return
                yield from handle(copy(request))

    def watch(self, request: learner_admin_pb2.WatchLearnerRequest) -> Callable[[], Any]:
        """Make the function that returns the changes of a learner. None: no change."""
        with self._lock:
            self._arrive("WatchLearner", request)
            learner = self.find(request.name)
        seen, events = -1, len(learner.events)

        def look() -> learner_admin_pb2.WatchLearnerResponse | None:
            nonlocal seen, events
            with self._lock:
                self.find(request.name)
                if seen == self._change:
                    return None
                answer = learner_admin_pb2.WatchLearnerResponse(status=learner.status(), events=learner.events[events:])
                seen, events = self._change, len(learner.events)
                return answer

        return look

    def find(self, name: str) -> FakeLearner:
        """Find a learner."""
        if name not in self.learners:
            raise refuse(LearnerNotFoundError, f"there is no learner {name!r}", learner=name)
        return self.learners[name]

    def named_or_only(self, name: str) -> FakeLearner:
        """Find a learner, or, where none is named, the only one."""
        if not name and len(self.learners) != 1:
            known = ", ".join(sorted(self.learners))
            problem = f"there are several learners, name one of them: {known}" if known else "there is no learner yet"
            raise refuse(LearnerNotFoundError, problem)
        return self.find(name or next(iter(self.learners)))

    def create(self, name: str, config: learner_pb2.LearnerConfig) -> FakeLearner:
        """Create a learner."""
        if name in self.learners:
            raise refuse(LearnerExistsError, f"there already is a learner {name!r}", learner=name)
        self.learners[name] = FakeLearner(name, config)
        return self.learners[name]

    def _arrive(self, method: str, request: Any) -> None:
        self.calls.append((method, request))
        if request.ByteSize() > self.message_bytes_limit:
            raise MessageTooLargeError("the message is too large", code="RESOURCE_EXHAUSTED")
        if self._failures[method]:
            raise self._failures[method].popleft()

    def _predict_one(self, question: prediction_pb2.PredictStreamRequest) -> list[prediction_pb2.PredictStreamResponse]:
        request = question.request
        try:
            answer = predict(self.named_or_only(request.learner), request, self.batch_examples_limit)
            return [prediction_pb2.PredictStreamResponse(id=question.id, response=answer)]
        except SharpError as error:
            import grpc

            failure = errors_pb2.Failure(
                code=grpc.StatusCode[canonical_code(error.reason)].value[0],
                reason=errors_pb2.ErrorReason.Value(error.reason),
                message=error.message,
                metadata=error.metadata,
            )
            return [prediction_pb2.PredictStreamResponse(id=question.id, failure=failure)]

    def do_GetServerStatus(  # noqa: N802
        self, request: admin_pb2.GetServerStatusRequest
    ) -> admin_pb2.GetServerStatusResponse:
        """Return the state of the server."""
        limits = server_pb2.Limits(message_bytes=self.message_bytes_limit, batch_examples=self.batch_examples_limit)
        status = admin_pb2.GetServerStatusResponse(
            version="fake",
            state=server_pb2.SERVER_STATE_SERVING,
            learners=len(self.learners),
            trainer=server_pb2.TrainerStatus(running=True, threads=1),
            teacher=server_pb2.TeacherStatus(running=True),
            limits=limits,
            device="cpu",
        )
        status.start_time.GetCurrentTime()
        return status
