"""The ceiling: a service on `grpc.aio` that takes the same messages, does nothing, and answers as long as ours does.

It has the settings of our process (allocator, collector, switch interval): what is compared is the work. With
`--together` it answers all who wait at once, a batch's time after the first: answers that leave in bursts cost gRPC
less, on both sides, so a service that batches can come near the plain one, or past it, without its work being free.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from typing import Any

import grpc

from sharp.v1 import label_pb2, prediction_pb2, prediction_pb2_grpc
from sharp_server.runtime import malloc

_BATCH_SECONDS = 0.0015
"""About what the engine takes for 32 small images."""


def answer(examples: int) -> prediction_pb2.PredictResponse:
    """As many bytes as a real answer, give or take a few."""
    response = prediction_pb2.PredictResponse(
        labels=label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[7] * examples)),
        vote_shares=[0.75] * examples,
        distances=[0.125] * examples,
        model_version=10,
        episodes_learned=10,
    )
    response.time_in_queue.nanos = response.time_in_compute.nanos = 123_456
    return response


class EmptyPrediction(prediction_pb2_grpc.PredictionServicer):
    """Serves `sharp.v1.Prediction` without predicting."""

    def __init__(self) -> None:
        self._answer = answer(1)

    async def Predict(self, request: Any, context: Any) -> prediction_pb2.PredictResponse:  # noqa: N802
        """Answer at once."""
        return self._answer

    def PredictStream(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        """Is not measured."""
        raise NotImplementedError


class EmptyTogether(EmptyPrediction):
    """The same, answering in bursts."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def Predict(self, request: Any, context: Any) -> prediction_pb2.PredictResponse:  # noqa: N802
        """Answer with the others."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_later(_BATCH_SECONDS, self._answer_all)
        self._waiting.append(future)
        await future
        return self._answer

    def _answer_all(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


async def serve(together: bool) -> None:
    """Serve until the process is ended; the port is the first line of the output."""
    malloc.keep_freed_memory()
    sys.setswitchinterval(0.001)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    prediction_pb2_grpc.add_PredictionServicer_to_server(EmptyTogether() if together else EmptyPrediction(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    malloc.forget_start_up()
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve("--together" in sys.argv))
