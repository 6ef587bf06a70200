"""The Prediction service: checks, hands over to the batcher, answers by columns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sharp.v1 import label_pb2, prediction_pb2_grpc
from sharp.v1 import prediction_pb2 as pb
from sharp_server.batcher import Slice
from sharp_server.config import LimitsConfig
from sharp_server.decode import Examples, examples_of, inputs_need_thread
from sharp_server.errors import Refusal, answer_for
from sharp_server.figures import label_message
from sharp_server.front import Front
from sharp_server.registry import Owned

_QUESTIONS_UNDER_WAY = 64


class PredictionService(prediction_pb2_grpc.PredictionServicer):
    """Serves `sharp.v1.Prediction`."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._limits = front.config.limits

    async def Predict(self, request: pb.PredictRequest, context: Any) -> pb.PredictResponse:  # noqa: N802
        """Predict the class of each example."""
        return await self._answer(request, context)

    async def PredictStream(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.PredictStreamRequest], context: Any
    ) -> AsyncIterator[pb.PredictStreamResponse]:
        """Predict over one long call; answers keep the order of the questions."""
        under_way: deque[tuple[int, asyncio.Task[pb.PredictResponse]]] = deque()
        stopping = asyncio.ensure_future(self._front.stopping.wait())
        reading: asyncio.Future[Any] | None = None
        iterator = request_iterator.__aiter__()
        try:
            ended = False
            while not ended or under_way:
                if reading is None and not ended and len(under_way) < _QUESTIONS_UNDER_WAY:
                    reading = asyncio.ensure_future(_next(iterator))
                waits: set[asyncio.Future[Any]] = {f for f in (reading, None if ended else stopping) if f is not None}
                if under_way:
                    waits.add(under_way[0][1])
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if reading is not None and reading.done():
                    question = reading.result()
                    reading = None
                    if question is None:
                        ended = True
                    else:
                        task = asyncio.ensure_future(self._answer(question.request, context))
                        under_way.append((question.id, task))
                while under_way and under_way[0][1].done():
                    number, task = under_way.popleft()
                    yield _item(number, task)
                if self._front.stopping.is_set() and not ended:
                    ended = True
                    for number, task in under_way:
                        await asyncio.wait({task})
                        yield _item(number, task)
                    under_way.clear()
                    raise Refusal("SERVER_NOT_READY", "the server is stopping")
        finally:
            stopping.cancel()
            if reading is not None:
                reading.cancel()
            for _, task in under_way:
                task.cancel()

    async def _answer(self, request: pb.PredictRequest, context: Any) -> pb.PredictResponse:
        owned = self._front.registry.get(request.learner)
        limits = self._limits
        top, memories = request.top_k, request.nearest_memories
        if top > limits.top_k or memories > limits.nearest_memories:
            _refuse_results(top, limits)
        waited = 0.0
        if request.min_model_version > owned.model.version:
            begun = asyncio.get_running_loop().time()
            left = context.time_remaining()
            # A little before the deadline, so that the reason still reaches the client.
            await owned.reach(
                request.min_model_version,
                limits.version_wait_seconds if left is None else left - min(0.1, 0.2 * max(left, 0.0)),
            )
            waited = asyncio.get_running_loop().time() - begun
        examples, decoding = await self.decoded(owned, request.inputs)
        part = await self._front.batcher.predict(owned, examples.x, top, memories, request.novelty)
        return _response(part, top, memories, request.novelty, waited, decoding)

    async def decoded(self, owned: Owned, inputs: Any) -> tuple[Examples, float]:
        """The examples of a request, and the seconds that decoding them took."""
        shape = owned.input_shape
        if owned.model.predictor is None:
            raise nothing_learned(owned)
        if not inputs_need_thread(inputs):
            return examples_of(inputs, shape, self._limits), 0.0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        examples = await loop.run_in_executor(self._front.threads, examples_of, inputs, shape, self._limits)
        return examples, loop.time() - begun


def nothing_learned(owned: Owned) -> Refusal:
    """There is no class to answer with."""
    when = "any more" if owned.model.version else "yet"
    return Refusal("NOTHING_LEARNED", f"the learner knows no class {when}", learner=owned.name)


def _refuse_results(top: int, limits: LimitsConfig) -> None:
    field, limit = ("top_k", limits.top_k) if top > limits.top_k else ("nearest_memories", limits.nearest_memories)
    raise Refusal("TOO_MANY_RESULTS", f"{field} may be {limit} at most", field=field, limit=limit, fields=(field,))


async def _next(iterator: Any) -> Any:
    try:
        return await iterator.__anext__()
    except StopAsyncIteration:
        return None


def _item(number: int, task: asyncio.Task[pb.PredictResponse]) -> pb.PredictStreamResponse:
    error = task.exception()
    if error is None:
        return pb.PredictStreamResponse(id=number, response=task.result())
    return pb.PredictStreamResponse(id=number, failure=answer_for(error).failure())


def _seconds(value: float) -> Duration:
    whole = int(value)
    return Duration(seconds=whole, nanos=int((value - whole) * 1e9))


def _response(
    part: Slice, top: int, memories: int, novelty: bool, waited: float, decoding: float
) -> pb.PredictResponse:
    """One request's share of a computed batch."""
    first, end, found, model = part.first, part.end, part.predictions, part.model
    labels: Any = found.labels[first:end] if end - first != len(found.labels) else found.labels
    if isinstance(labels[0], str):
        wrapped = label_pb2.Labels(texts=label_pb2.TextLabels(values=labels))
    else:
        wrapped = label_pb2.Labels(numbers=label_pb2.NumberLabels(values=labels))
    response = pb.PredictResponse(
        labels=wrapped,
        vote_shares=found.share[first:end].tolist(),
        distances=found.distance[first:end].tolist(),
        novelties=found.novelty[first:end].tolist() if novelty and found.novelty is not None else None,
        model_version=model.version,
        episodes_learned=model.episodes,
        time_in_queue=_seconds(waited + part.waited),
        time_in_compute=_seconds(decoding + part.computed),
    )
    if top or memories:
        for i in range(first, end):
            _add_details(response, part, i, top, memories)
    return response


def _add_details(response: pb.PredictResponse, part: Slice, i: int, top: int, memories: int) -> None:
    found = part.predictions
    details = response.details.add()
    for j, label in enumerate(found.top_labels[i][:top]):
        details.top_classes.add(
            label=label_message(label),
            vote_share=float(found.top_share[i, j]),
            distance=float(found.top_distance[i, j]),
        )
    for j, label in enumerate(found.memory_labels[i][:memories]):
        details.nearest_memories.add(
            label=label_message(label),
            episode=int(found.memory_episode[i, j]),
            distance=float(found.memory_distance[i, j]),
        )
