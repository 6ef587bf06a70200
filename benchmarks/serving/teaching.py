"""How long it takes to teach one example, beside a durable empty write; and what predictions notice of it.

The learner knows a hundred classes of vectors. The other side of Teach writes as many bytes into a file with the
journal's settings, one commit each: less than that no durable answer can take. Predictions are asked of the very
learner that is taught, at half of the idle maximum; no episode is learned meanwhile, so the teacher has the trainer's
core, as far as whoever asks and teaches leaves it. The floor of what they notice is an empty service on the front's
core that takes as many calls of Teach and only makes their labels durable: that much they cost there, whatever is done
with them. Last comes a flood of batches on Learn, faster than they can be counted.
"""

from __future__ import annotations

import base64
import contextlib
import os
import statistics
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reporting.runner import ReportProgress
from benchmarks.serving.background import in_background
from benchmarks.serving.bench import Bench
from benchmarks.serving.empty_teaching import empty_journal, write
from benchmarks.serving.latency import Latency
from benchmarks.serving.options import TEACHING_TARGET
from benchmarks.serving.processes import EmptyTeaching, on_cores
from sharp.v1 import prediction_pb2, tensor_pb2
from sharp_client import Client, OpenEpisodeWarning

LEARNER = "taught"
CLASSES = 100
FEATURES = 64
_EACH = 10
"""Examples of each class in the episode that is learned before."""
_LESSON_BYTES = 4 * FEATURES
_FLOOD_BATCH, _FLOOD_RATE = 64, 50.0
"""Examples of a batch, and batches a second."""
_CALLERS = 8
"""Threads that teach at the fixed rate: a call may be answered late without the next one being late."""

Array = NDArray[np.float32]


@dataclass
class Spent:
    """Seconds of single calls, round by round."""

    name: str
    rounds: list[list[float]] = field(default_factory=list)

    def percentile(self, which: float) -> float:
        """The median over rounds of a percentile."""
        return statistics.median(float(np.percentile(seconds, which)) for seconds in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        calls = sum(map(len, self.rounds))
        return {
            "name": self.name,
            "p50_seconds": self.percentile(50),
            "p99_seconds": self.percentile(99),
            "calls": calls,
        }


@dataclass
class TeachingResult:
    """What was measured."""

    rate: float
    """Predictions per second."""
    labels_per_second: float
    classes: int = CLASSES
    teach: Spent = field(default_factory=lambda: Spent("Teach of one example"))
    write: Spent = field(default_factory=lambda: Spent("durable empty write"))
    idle: Latency = field(default_factory=lambda: Latency("idle"))
    teaching: Latency = field(default_factory=lambda: Latency("while labels are taught"))
    floor: Latency = field(default_factory=lambda: Latency("while an empty service makes as many durable"))
    flood: Latency = field(default_factory=lambda: Latency("while batches come faster than they are counted"))
    behind: list[int] = field(default_factory=list)
    """Durable examples that answers did not know yet when the flood ended, as the server said."""
    taught: list[float] = field(default_factory=list)
    """Labels whose call was answered, per second, as long as predictions were asked for; round by round."""
    teach_under_load: Spent = field(default_factory=lambda: Spent("Teach at that rate, beside predictions"))

    @property
    def failures(self) -> int:
        """Predictions that were not answered."""
        return self.idle.failures + sum(state.failures for state in (self.teaching, self.floor, self.flood))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        p50, p99 = self.teaching.against(self.idle)
        ratios = {which: self.teach.percentile(which) / self.write.percentile(which) for which in (50, 99)}
        return {
            "classes": self.classes,
            "calls": [spent.to_dict() for spent in (self.teach, self.write, self.teach_under_load)],
            "p50_ratio_to_write": ratios[50],
            "p99_ratio_to_write": ratios[99],
            "prediction_rate": self.rate,
            "labels_per_second": self.labels_per_second,
            "labels_taught_per_second": statistics.median(self.taught),
            "predictions": [state.to_dict() for state in (self.idle, self.teaching, self.floor, self.flood)],
            "prediction_p50_ratio": p50,
            "prediction_p99_ratio": p99,
            "floor_p99_ratio": self.floor.against(self.idle)[1],
            "flood_p99_ratio": self.flood.against(self.idle)[1],
            "flood_examples_per_second": _FLOOD_BATCH * _FLOOD_RATE,
            "flood_examples_behind": statistics.median(self.behind),
            "target": TEACHING_TARGET,
        }


def teaching(bench: Bench, progress: ReportProgress) -> TeachingResult:
    """Measure both, in every round."""
    options, rng = bench.options, np.random.default_rng(0)
    corners = rng.random((CLASSES, FEATURES), dtype=np.float32)
    _prepare(bench, corners)
    bench.server.settle()
    payload = _payload(corners[:1])
    most = bench.load.ask(_order(bench, payload, in_flight=options.sizes.in_flight))
    rate = len(most["latencies"]) / most["seconds"] / 2
    result = TeachingResult(rate, options.sizes.labels_per_second)
    for number in range(1, options.sizes.latency_rounds + 1):
        progress(f"teaching: single calls, round {number} of {options.sizes.latency_rounds}")
        result.teach.rounds.append([_teach(bench.client, corners, rng) for _ in range(options.sizes.lessons)])
        result.write.rounds.append(_writes(bench, options.sizes.lessons))
        progress(f"teaching: predictions, round {number} of {options.sizes.latency_rounds}")
        result.idle.add(bench.load.ask(_order(bench, payload, rate=rate)))
        with _keep_teaching(bench, corners, result):
            result.teaching.add(bench.load.ask(_order(bench, payload, rate=rate)))
        with EmptyTeaching(bench.folder, bench.cores) as empty, Client(empty.address) as client:
            with _calls(client, corners, result.labels_per_second):
                result.floor.add(bench.load.ask(_order(bench, payload, rate=rate)))
        with _flood(bench, corners, result):
            result.flood.add(bench.load.ask(_order(bench, payload, rate=rate)))
    return result


def _prepare(bench: Bench, corners: Array) -> None:
    """A learner that has learned every class in one episode."""
    rng = np.random.default_rng(1)
    bench.client.create_learner(LEARNER, overrides=bench.options.overrides, seed=0)
    y = np.repeat(np.arange(CLASSES), _EACH)
    with bench.client.learn(LEARNER) as stream:
        order = rng.permutation(len(y))
        stream.send(_like(corners, y, rng)[order], y[order])
        stream.end_episode().wait(600.0)


def _like(corners: Array, classes: Any, rng: np.random.Generator) -> Array:
    noise = rng.random((len(classes), FEATURES), dtype=np.float32)
    examples: Array = 0.7 * corners[classes] + 0.3 * noise
    return examples


def _teach(client: Client, corners: Array, rng: np.random.Generator) -> float:
    label = int(rng.integers(CLASSES))
    x = _like(corners, [label], rng)
    begun = time.perf_counter()
    client.teach(LEARNER, x, [label], create=False)
    return time.perf_counter() - begun


def _writes(bench: Bench, count: int) -> list[float]:
    """Commits of as many bytes as a lesson has, with the journal's settings, beside the journal."""
    found, block = [], os.urandom(_LESSON_BYTES)
    with on_cores(bench.cores.front), empty_journal(bench.folder / "data") as connection:
        for _ in range(count):
            begun = time.perf_counter()
            write(connection, block)
            found.append(time.perf_counter() - begun)
    return found


@contextlib.contextmanager
def _keep_teaching(bench: Bench, corners: Array, result: TeachingResult) -> Iterator[None]:
    """Teach beside the block, and take down how that went."""
    with _calls(bench.client, corners, result.labels_per_second) as calls:
        begun = time.perf_counter()
        yield
        result.taught.append(sum(call.done() for call in calls) / (time.perf_counter() - begun))
    result.teach_under_load.rounds.append([call.result() for call in calls])


@contextlib.contextmanager
def _calls(client: Client, corners: Array, rate: float) -> Iterator[list[Future[float]]]:
    """A label every 1/rate seconds, whatever became of those before."""
    calls, rng = list[Future[float]](), np.random.default_rng(2)

    def teach(threads: ThreadPoolExecutor, stop: threading.Event) -> None:
        begun = time.perf_counter()
        while not stop.is_set():
            calls.append(threads.submit(_teach, client, corners, rng))
            time.sleep(max(0.0, begun + len(calls) / rate - time.perf_counter()))

    with ThreadPoolExecutor(_CALLERS) as threads, in_background(partial(teach, threads)):
        yield calls


@contextlib.contextmanager
def _flood(bench: Bench, corners: Array, result: TeachingResult) -> Iterator[None]:
    """Batches on Learn beside the block; afterwards, until everything is counted."""
    rng = np.random.default_rng(3)

    def send(stop: threading.Event) -> None:
        begun, sent = time.perf_counter(), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OpenEpisodeWarning)
            with bench.client.learn(LEARNER) as stream:
                while not stop.wait(max(0.0, begun + sent / _FLOOD_RATE - time.perf_counter())):
                    y = rng.integers(CLASSES, size=_FLOOD_BATCH)
                    stream.send(_like(corners, y, rng), y)
                    sent += 1

    def uncounted() -> int:
        return bench.client.learner(LEARNER).status().backlog.uncounted_examples

    with in_background(send):
        yield
        result.behind.append(uncounted())
    while uncounted():
        time.sleep(0.1)


def _payload(x: Array) -> str:
    tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=x.shape, data=x.astype("<f4").tobytes())
    request = prediction_pb2.PredictRequest(learner=LEARNER, inputs=tensor_pb2.Inputs(tensor=tensor))
    return base64.b64encode(request.SerializeToString()).decode()


def _order(bench: Bench, payload: str, **how: Any) -> dict[str, Any]:
    return {"address": bench.server.address, "payload": payload, "seconds": bench.options.seconds, **how}
