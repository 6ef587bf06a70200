"""The state of a prediction stream, without input and output: which answers belong together, and what failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sharp.v1 import prediction_pb2

from ._errors import SharpError
from ._failures import error_of_failure
from ._options import Limits
from ._requests import predict_requests
from ._results import Prediction, decode_prediction


class PredictionStreamState:
    """Splits batches into messages and joins their answers again."""

    def __init__(self, learner: str, limits: Limits, return_failures: bool, **options: Any) -> None:
        self._learner, self._limits, self._options = learner, limits, options
        self._return_failures = return_failures
        self._parts: dict[int, int] = {}
        self._answers: list[prediction_pb2.PredictResponse] = []
        self._failure: SharpError | None = None
        self._received = 0
        self._number = 0
        self.error: Exception | None = None
        """What is wrong with a batch, or went wrong in the caller's iterator: gRPC would swallow it."""

    def requests(self, x: Any) -> Iterator[prediction_pb2.PredictStreamRequest]:
        """Write one batch."""
        requests = list(predict_requests(self._learner, x, self._limits, **self._options))
        self._parts[self._number] = len(requests)
        for request in requests:
            yield prediction_pb2.PredictStreamRequest(id=self._number, request=request)
        self._number += 1

    def receive(self, message: prediction_pb2.PredictStreamResponse) -> Prediction | SharpError | None:
        """Apply one answer; returns the result of a batch with its last part."""
        if message.WhichOneof("result") == "response":
            self._answers.append(message.response)
        else:
            self._failure = self._failure or error_of_failure(message.failure)
        self._received += 1
        if self._received < self._parts[message.id]:
            return None
        answers, failure = self._answers, self._failure
        self._answers, self._failure, self._received = [], None, 0
        del self._parts[message.id]
        if failure is not None and not self._return_failures:
            raise failure
        return failure or decode_prediction(answers)
