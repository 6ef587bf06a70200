"""The ceiling: a service on `grpc.aio` that takes the same messages, does nothing, and answers as long as ours does."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc

from sharp.v1 import label_pb2, prediction_pb2, prediction_pb2_grpc


def answer(examples: int) -> prediction_pb2.PredictResponse:
    """As many bytes as a real answer, give or take a few."""
    response = prediction_pb2.PredictResponse(
        labels=label_pb2.Labels(numbers=label_pb2.NumberLabels(values=[7] * examples)),
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


async def serve() -> None:
    """Serve until the process is ended; the port is the first line of the output."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    prediction_pb2_grpc.add_PredictionServicer_to_server(EmptyPrediction(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
