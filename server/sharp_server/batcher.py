"""Dynamic batching: predictions of one learner that come together are computed together, in the predictor's thread.

A request alone waits for nobody. While a batch is computed, others gather; a few or more wait for others as long as
more keep coming: on a core that busy they gain by it, for a large batch costs little more than a small one. Every
request is answered wholly by one version: the model is taken when its batch starts. The event loop only hands over and
receives; no torch runs on it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sharp_engine import Predictions
from sharp_server.config import BatchingConfig
from sharp_server.errors import Refusal
from sharp_server.metrics import Metrics
from sharp_server.models import Model
from sharp_server.registry import Owned

_COMPANY = 4
"""So many requests, in this batch or in the one before, mean that the core is busy and more are on their way."""

_LOOK_SECONDS = 0.001
"""Company that nobody joins within this time is complete."""


@dataclass(slots=True)
class Slice:
    """The part of a computed batch that belongs to one request."""

    model: Model
    predictions: Predictions
    first: int
    end: int
    waited: float
    """Seconds in the queue."""
    computed: float
    """Seconds of the computation."""


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

    def __init__(self, config: BatchingConfig, threads: int, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        torch.set_num_threads(threads)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predictor")
        self._lanes: dict[int, _Lane] = {}
        self.examples_waiting = 0

    async def predict(self, owned: Owned, x: NDArray[Any], top: int, memories: int, novelty: bool) -> Slice:
        """Answer for validated examples, together with whatever else waits for this learner."""
        limit = self._config.queue_examples
        if self.examples_waiting and self.examples_waiting + len(x) > limit:
            raise Refusal("QUEUE_FULL", "too many predictions are waiting", retry=0.05, limit=limit)
        lane = self._lanes.get(owned.id)
        if lane is None:
            lane = self._lanes[owned.id] = _Lane(self, owned)
        future: asyncio.Future[Slice] = lane.loop.create_future()
        self.examples_waiting += len(x)
        try:
            lane.add(_Waiting(x, top, memories, novelty, future, time.perf_counter()))
            return await future
        finally:
            self.examples_waiting -= len(x)

    def forget(self, owned: Owned) -> None:
        """A learner was deleted."""
        self._lanes.pop(owned.id, None)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Lane:
    """What waits for one learner. At most one batch of a learner is under way, so learners take turns."""

    def __init__(self, batcher: Batcher, owned: Owned) -> None:
        self._batcher, self._owned = batcher, owned
        self.loop = asyncio.get_running_loop()
        self._queue: deque[_Waiting] = deque()
        self._scheduled: asyncio.Handle | None = None
        self._computing = False
        self._together = 1
        """Requests of the batch before: whether company may be expected."""
        self._seen = 0
        """Requests that waited at the last look."""

    def add(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        if not self._computing and self._scheduled is None:
            # After whatever else the loop has in hand: requests that arrived at the same time go together.
            self._scheduled = self.loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = None
        config, queue = self._batcher._config, self._queue
        if not queue or self._computing:
            return
        if len(queue) > max(self._seen, 1) and max(len(queue), self._together) >= _COMPANY:
            self._seen = len(queue)
            left = queue[0].came + config.longest_wait_ms / 1000.0 - time.perf_counter()
            if left > 0 and sum(len(w.x) for w in queue) < config.largest_batch:
                self._scheduled = self.loop.call_later(min(left, _LOOK_SECONDS), self._start)
                return
        self._seen = 0
        batch: list[_Waiting] = []
        examples = 0
        while queue and (not batch or examples + len(queue[0].x) <= config.largest_batch):
            waiting = queue.popleft()
            if waiting.future.done():  # the caller has gone
                continue
            batch.append(waiting)
            examples += len(waiting.x)
        if not batch:
            return
        self._together = len(batch)
        self._computing = True
        self._batcher._thread.submit(self._compute, batch, self._owned.model)

    def _compute(self, batch: list[_Waiting], model: Model) -> None:
        """In the predictor's thread."""
        begun = time.perf_counter()
        result: Predictions | Exception
        try:
            result = _predict(model, batch)
        except Exception as error:  # told to every caller of the batch
            result = error
        took = time.perf_counter() - begun
        self.loop.call_soon_threadsafe(self._finish, batch, model, result, begun, took)

    def _finish(
        self, batch: list[_Waiting], model: Model, result: Predictions | Exception, begun: float, took: float
    ) -> None:
        self._computing = False
        if self._queue and self._scheduled is None:
            self._scheduled = self.loop.call_soon(self._start)
        first = 0
        metrics = self._batcher._metrics
        for waiting in batch:
            end = first + len(waiting.x)
            waited = begun - waiting.came
            if not waiting.future.done():
                if isinstance(result, Exception):
                    waiting.future.set_exception(result)
                else:
                    waiting.future.set_result(Slice(model, result, first, end, waited, took))
            first = end
        metrics.queue_seconds.observe(begun - batch[0].came)
        metrics.compute_seconds.observe(took)
        metrics.batch_examples.observe(first)
        self._owned.predicted.add(first)


def _predict(model: Model, batch: list[_Waiting]) -> Predictions:
    if model.predictor is None:
        raise Refusal("NOTHING_LEARNED", "the learner knows no class yet" if not model.version else "no class is left")
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
