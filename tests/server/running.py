"""Real server processes on loopback, ports from the system, and raw stubs to talk to them."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]

from devtools.server_process import ONE_THREAD, ServerProcess
from sharp.inference import open_inference_pb2_grpc
from sharp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    label_pb2,
    learner_admin_pb2,
    learner_pb2,
    learning_pb2,
    learning_pb2_grpc,
    prediction_pb2,
    prediction_pb2_grpc,
    snapshot_pb2,
    tensor_pb2,
)

SECONDS = 180.0
"""After this long something hangs, on however busy a machine."""
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]

SMALL = {
    "metric.random_features": "24",
    "training.phases": "2",
    "training.min_steps": "8",
    "architecture.kind": "mlp",
    "architecture.layers": json.dumps([{"kind": "linear", "units": 40}] * 3),
}
"""Settings of a learner of vectors that learns in a moment."""


class Server(ServerProcess):
    """A server process and stubs for its services. Settings are keywords with __ for the dot."""

    def __init__(self, folder: Path, **settings: object) -> None:
        for_tests = {
            "http.enabled": True,
            "http.port": 0,
            "trainer.retry_seconds": 0.1,
            "trainer.niceness": 0,
            "stop.grace_seconds": 5,
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        super().__init__(folder, for_tests, environment=ONE_THREAD)
        self.token: str | None = None

    def wait_until_ready(self, seconds: float = SECONDS) -> None:
        super().wait_until_ready(seconds)
        self.connect()

    def connect(self) -> None:
        self.channel = grpc.insecure_channel(self.address, OPTIONS)
        self.learning = learning_pb2_grpc.LearningStub(self.channel)
        self.prediction = prediction_pb2_grpc.PredictionStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)
        self.inference = open_inference_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def kill(self) -> None:
        self._disconnect()
        super().kill()

    def stop(self, seconds: float = SECONDS) -> int:
        self._disconnect()
        return super().stop(seconds)

    def restart(self) -> None:
        self.start()

    def _disconnect(self) -> None:
        if hasattr(self, "channel"):
            self.channel.close()

    # ---- short forms --------------------------------------------------------------------------------------------

    def create(self, name: str, seed: int = 0, shape: Iterable[int] = (), **overrides: str) -> None:
        settings = {**SMALL, **{key.replace("__", "."): value for key, value in overrides.items()}}
        config = learner_pb2.LearnerConfig(overrides=settings, seed=seed, input_shape=list(shape))
        self.admin.CreateLearner(learner_admin_pb2.CreateLearnerRequest(name=name, config=config), timeout=SECONDS)

    def learner(self, name: str) -> learner_pb2.Learner:
        return self.admin.GetLearner(learner_admin_pb2.GetLearnerRequest(name=name), timeout=SECONDS).learner

    def status(self) -> admin_pb2.GetServerStatusResponse:
        return self.admin.GetServerStatus(admin_pb2.GetServerStatusRequest(), timeout=SECONDS)

    def predict(self, name: str, x: np.ndarray[Any, Any], **options: Any) -> prediction_pb2.PredictResponse:
        request = prediction_pb2.PredictRequest(learner=name, inputs=tensor(x), **options)
        return self.prediction.Predict(request, timeout=SECONDS)

    def exported(self, name: str, snapshot_id: str = "") -> tuple[snapshot_pb2.Snapshot, bytes]:
        """A snapshot, the newest if none is named, and its file."""
        request = snapshot_pb2.ExportSnapshotRequest(learner=name, snapshot_id=snapshot_id)
        parts = list(self.admin.ExportSnapshot(request, timeout=SECONDS))
        return parts[0].snapshot, b"".join(part.chunk for part in parts[1:])

    def stream(self, name: str, stream_id: str = "s", **options: Any) -> Stream:
        return Stream(self, learning_pb2.Open(learner=name, stream_id=stream_id, **options))

    def lesson(
        self, name: str, x: np.ndarray[Any, Any], y: list[Any], request_id: str = "", **options: Any
    ) -> learning_pb2.TeachResponse:
        """Teach a few examples at once."""
        chosen = request_id or uuid.uuid4().hex
        request = learning_pb2.TeachRequest(
            learner=name, request_id=chosen, inputs=tensor(x), labels=labels(y), **options
        )
        return self.learning.Teach(request, timeout=SECONDS)

    def teach(self, name: str, *episodes: tuple[np.ndarray[Any, Any], list[Any]], stream_id: str = "s") -> int:
        """Teach whole episodes and wait until they are learned; returns the last version."""
        with self.stream(name, stream_id) as stream:
            for x, y in episodes:
                stream.send(x, y)
                stream.end()
            stream.close()
            learned = [event.learned for event in stream.events() if event.HasField("learned")]
        assert len(learned) == len(episodes), self.log.read_text()[-3000:]
        version: int = learned[-1].model_version
        return version


class Stream:
    """One Learn call, driven by hand."""

    def __init__(self, server: Server, opening: learning_pb2.Open) -> None:
        self._requests: queue.Queue[learning_pb2.LearnRequest | None] = queue.Queue()
        self._requests.put(learning_pb2.LearnRequest(open=opening))
        self.call = server.learning.Learn(iter(self._requests.get, None), timeout=2 * SECONDS)
        self._answers = iter(self.call)
        self.acked = 0
        self.seen: list[Any] = []
        self.opened = next(self._answers).opened
        self.sequence = self.acked = self.opened.last_durable_sequence

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self.call.cancel()

    def send(self, x: np.ndarray[Any, Any], y: list[Any], sequence: int | None = None) -> int:
        self.sequence = self.sequence + 1 if sequence is None else sequence
        batch = learning_pb2.Batch(sequence=self.sequence, inputs=tensor(x), labels=labels(y))
        self._requests.put(learning_pb2.LearnRequest(batch=batch))
        return self.sequence

    def end(self) -> int:
        self.sequence += 1
        self._requests.put(learning_pb2.LearnRequest(end_episode=learning_pb2.EndEpisode(sequence=self.sequence)))
        return self.sequence

    def put(self, request: learning_pb2.LearnRequest) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)

    def wait_ack(self, sequence: int | None = None) -> None:
        wanted = self.sequence if sequence is None else sequence
        while self.acked < wanted:
            self._next()

    def wait_event(self, kind: str) -> Any:
        """The next event of a kind; those before it are in `seen`."""
        while True:
            answer = self._next()
            if answer.HasField("event") and answer.event.WhichOneof("event") == kind:
                return answer.event

    def events(self) -> Iterator[Any]:
        """All events until the call ends."""
        for answer in self._answers:
            if answer.HasField("event"):
                yield answer.event
            elif answer.HasField("ack"):
                self.acked = answer.ack.sequence

    def _next(self) -> learning_pb2.LearnResponse:
        answer: learning_pb2.LearnResponse = next(self._answers)
        if answer.HasField("ack"):
            assert answer.ack.sequence >= self.acked
            self.acked = answer.ack.sequence
        elif answer.HasField("event"):
            self.seen.append(answer.event)
        return answer


def tensor(x: np.ndarray[Any, Any]) -> tensor_pb2.Inputs:
    dtype = tensor_pb2.DTYPE_UINT8 if x.dtype == np.uint8 else tensor_pb2.DTYPE_FLOAT32
    if x.dtype != np.uint8:
        x = x.astype("<f4")
    return tensor_pb2.Inputs(tensor=tensor_pb2.Tensor(dtype=dtype, shape=x.shape, data=x.tobytes()))


def labels(y: list[Any]) -> label_pb2.Labels:
    if y and isinstance(y[0], str):
        return label_pb2.Labels(texts=label_pb2.TextLabels(values=y))
    return label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[int(v) for v in y]))


def answered(response: prediction_pb2.PredictResponse) -> list[Any]:
    kind = response.labels.WhichOneof("kind")
    return list(response.labels.texts.values if kind == "texts" else response.labels.integers.values)


def blobs(classes: Iterable[Any], each: int = 40, features: int = 12, seed: int = 0) -> tuple[Any, list[Any]]:
    """`each` examples of every class, in random order: a corner of the cube and noise."""
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for label in classes:
        corner = np.random.default_rng(abs(hash_of(label))).random(features)
        xs.append(0.8 * corner + 0.2 * rng.random((each, features)))
        ys += [label] * each
    order = rng.permutation(len(ys))
    return np.concatenate(xs)[order].astype(np.float32), [ys[i] for i in order]


def hash_of(label: object) -> int:
    return sum((i + 1) * byte for i, byte in enumerate(repr(label).encode()))


class Failure:
    """What a failed call says."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.code: grpc.StatusCode = error.code()
        self.message: str = error.details() or ""
        self.reason, self.metadata, self.retry, self.fields = "", {}, None, []
        status = rpc_status.from_call(error)
        for detail in status.details if status is not None else ():
            info, retry, bad = (
                error_details_pb2.ErrorInfo(),
                error_details_pb2.RetryInfo(),
                error_details_pb2.BadRequest(),
            )
            if detail.Unpack(info):
                assert info.domain == "sharp.v1"
                self.reason, self.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(retry):
                self.retry = retry.retry_delay.ToTimedelta().total_seconds()
            elif detail.Unpack(bad):
                self.fields = [violation.field for violation in bad.field_violations]


@contextlib.contextmanager
def refused(reason: str) -> Iterator[list[Failure]]:
    """The block must fail with this reason; the failure is in the list afterwards."""
    found: list[Failure] = []
    try:
        yield found
    except grpc.RpcError as error:
        found.append(Failure(error))
        assert found[0].reason == reason, (found[0].code, found[0].reason, found[0].message)
        said = found[0].message + str(found[0].metadata)
        assert not any(word in said for word in ("Traceback", ".py", "/tmp", "/work"))
        return
    raise AssertionError(f"nothing failed, expected {reason}")


def until(condition: Any, seconds: float = SECONDS, what: str = "") -> Any:
    """Wait for a condition; returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"it never came: {what}"
        time.sleep(0.02)


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
