"""Dynamic batching: predictions of one learner that come together are computed together, in the predictor's thread.

A request alone waits for nobody: the thread takes whatever waits at the moment it gets to run. It gives way to the
event loop, so requests gather as long as there are more to take in on a busy core, and not a moment longer; no timer
says how long. Every request is answered wholly by one version: the model is taken when its batch starts. The event loop
only hands over and receives; no torch runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sharp_engine import Predictions
from sharp_server.config.model import BatchingConfig, PredictorConfig
from sharp_server.errors import RpcError
from sharp_server.prediction.model import Model, nothing_learned
from sharp_server.runtime.answer_histograms import AnswerHistograms
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.rate import Rate
from sharp_server.runtime.thread_priority import lower_thread_priority


class Servable(Protocol):
    """Whatever has a model that may be swapped at any moment."""

    @property
    def id(self) -> int:
        """Tells it from all others."""
        ...

    @property
    def model(self) -> Model:
        """The version that serves now."""
        ...

    @property
    def predicted(self) -> Rate:
        """Counts the examples that were answered."""
        ...

    @property
    def answers(self) -> AnswerHistograms:
        """Counts how sure the answers were."""
        ...


@dataclass(slots=True)
class Computed:
    """What a batch gave: one for all its requests, so that what they share is converted once."""

    model: Model
    predictions: Predictions
    shares: list[float]
    distances: list[float]
    seconds: float
    """That the computation took."""


@dataclass(slots=True)
class Slice:
    """The part of a computed batch that belongs to one request."""

    batch: Computed
    first: int
    end: int
    waited: float
    """Seconds in the queue."""


@dataclass(slots=True)
class _Waiting:
    x: NDArray[Any]
    top: int
    memories: int
    novelty: bool
    future: asyncio.Future[Slice]
    came: float


class Batcher:
    """The predictor's thread and what waits for it, learner by learner."""

    def __init__(self, config: BatchingConfig, predictor: PredictorConfig, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        self._loop = asyncio.get_running_loop()
        self._niceness = predictor.niceness
        torch.set_num_threads(predictor.threads)
        self._lanes: dict[int, _Lane] = {}
        self._ready: SimpleQueue[_Lane | None] = SimpleQueue()
        """Lanes in which something waits, each at most once: learners take turns."""
        self.examples_waiting = 0
        """Not answered yet, over all learners."""
        self._thread = threading.Thread(target=self._work, name="predictor")
        self._thread.start()

    def predict(
        self, served: Servable, x: NDArray[Any], top: int, memories: int, novelty: bool
    ) -> asyncio.Future[Slice]:
        """Answer for validated examples, together with whatever else waits for this learner."""
        count, limit = len(x), self._config.queue_examples
        if self.examples_waiting and self.examples_waiting + count > limit:
            raise RpcError("QUEUE_FULL", "too many predictions are waiting", retry=0.05, limit=limit)
        lane = self._lanes.get(served.id)
        if lane is None:
            lane = self._lanes[served.id] = _Lane(served)
        future: asyncio.Future[Slice] = self._loop.create_future()
        self.examples_waiting += count
        lane.queue.append(_Waiting(x, top, memories, novelty, future, time.perf_counter()))
        self._announce(lane)
        return future

    def forget(self, learner: int) -> None:
        """A learner was deleted."""
        self._lanes.pop(learner, None)

    def close(self) -> None:
        """End the thread, after the batch that it has in hand."""
        self._ready.put(None)

    def _announce(self, lane: _Lane) -> None:
        if not lane.announced:
            lane.announced = True
            self._ready.put(lane)

    # ---- the predictor's thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        lower_thread_priority(self._niceness)
        while (lane := self._ready.get()) is not None:
            self._serve(lane)

    def _serve(self, lane: _Lane) -> None:
        """Answer those who wait in a lane, as many as are computed together."""
        lane.announced = False  # before the queue is looked at: whoever comes later announces it again
        batch = lane.take(self._config.max_batch_size)
        if lane.queue:
            self._announce(lane)
        if batch:
            self._compute(lane.served, batch)

    def _compute(self, served: Servable, batch: list[_Waiting]) -> None:
        model, begun = served.model, time.perf_counter()
        asked = [waiting for waiting in batch if not waiting.future.done()]  # the others have gone
        result: Computed | Exception | None = None
        try:
            if asked:
                found = _predict(model, asked)
                took = time.perf_counter() - begun
                served.answers.add(found.share, found.novelty)
                result = Computed(model, found, found.share.tolist(), found.distance.tolist(), took)
        except Exception as error:  # every caller of the batch gets it
            result = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish, served, batch, asked, result, begun)

    # ---- the event loop again -----------------------------------------------------------------------------------

    def _finish(
        self,
        served: Servable,
        batch: list[_Waiting],
        asked: list[_Waiting],
        result: Computed | Exception | None,
        begun: float,
    ) -> None:
        for waiting in batch:
            self.examples_waiting -= len(waiting.x)
        first = 0
        for waiting in asked:
            end = first + len(waiting.x)
            if waiting.future.done():
                pass
            elif isinstance(result, Computed):
                waiting.future.set_result(Slice(result, first, end, begun - waiting.came))
            elif result is not None:
                waiting.future.set_exception(result)
            first = end
        metrics = self._metrics
        metrics.queue_seconds.observe(begun - batch[0].came)
        if isinstance(result, Computed):
            metrics.compute_seconds.observe(result.seconds)
            metrics.batch_examples.observe(first)
            served.predicted.add(first)


class _Lane:
    """What waits for one learner: the event loop appends, the predictor's thread takes."""

    def __init__(self, served: Servable) -> None:
        self.served = served
        self.queue: deque[_Waiting] = deque()
        self.announced = False

    def take(self, largest: int) -> list[_Waiting]:
        """Who is computed together: as many as fit, and at least one if anyone waits."""
        queue, batch, examples = self.queue, list[_Waiting](), 0
        while queue and (not batch or examples + len(queue[0].x) <= largest):
            batch.append(queue.popleft())
            examples += len(batch[-1].x)
        return batch


def _predict(model: Model, batch: list[_Waiting]) -> Predictions:
    if model.predictor is None:
        raise nothing_learned(model.version)
    x = batch[0].x if len(batch) == 1 else _joined([waiting.x for waiting in batch])
    return model.predictor.predict(
        torch.from_numpy(x if x.flags.writeable else x.copy()),
        max(waiting.top for waiting in batch),
        max(waiting.memories for waiting in batch),
        any(waiting.novelty for waiting in batch),
    )


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.astype(np.float32) / np.float32(255) if array.dtype == np.uint8 else array for array in arrays]
    return np.concatenate(arrays)
