"""SIGTERM under load: what was accepted is answered, everyone else is told, and the server ends well and in time."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from sharp.v1 import learner_admin_pb2, prediction_pb2, prediction_pb2_grpc
from sharp.v1 import snapshot_pb2 as snap
from tests.server.running import SECONDS, Failure, Server, blobs, in_thread, tensor

GRACE = 30.0
ASKERS = 8


class Asker:
    """Predicts over a connection of its own, one request after the other, until it is refused."""

    def __init__(self, server: Server, x: np.ndarray[Any, Any]) -> None:
        self.answered = 0
        self.refusal: Failure | None = None
        self._request = prediction_pb2.PredictRequest(learner="a", inputs=tensor(x), top_k=2)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.port}", [("grpc.use_local_subchannel_pool", 1)])
        self._stub = prediction_pb2_grpc.PredictionStub(self._channel)
        self.thread = in_thread(self._run)

    def _run(self) -> None:
        try:
            while True:
                response = self._stub.Predict(self._request, timeout=SECONDS)
                assert response.model_version >= 1
                self.answered += 1
        except grpc.RpcError as error:
            self.refusal = Failure(error)
        finally:
            self._channel.close()


def endless(items: queue.Queue[Any]) -> Iterator[Any]:
    while (item := items.get()) is not None:
        yield item


def told(call: Any) -> Failure:
    """How a stream ended."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return Failure(error)
    raise AssertionError("the stream ended as if nothing were wrong")


def test_a_server_that_is_told_to_stop_fails_nothing_that_it_accepted(serve: Callable[..., Server]) -> None:
    server = serve(stop__grace_seconds=GRACE)
    x, y = blobs(["a", "b"])
    server.create("a")
    server.teach("a", (x, y))
    silent: queue.Queue[Any] = queue.Queue()
    idle = [  # streams on which nothing happens must not keep the server
        server.prediction.PredictStream(endless(silent), timeout=SECONDS),
        server.admin.WatchLearner(learner_admin_pb2.WatchLearnerRequest(name="a"), timeout=SECONDS),
    ]
    stopping = threading.Event()
    brought = server.admin.ImportSnapshot.future(in_two_parts(exported(server), stopping), timeout=SECONDS)
    health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(), timeout=SECONDS)
    askers = [Asker(server, x[:4]) for _ in range(ASKERS)]
    with server.stream("a", "producer") as stream:
        sent, live = threading.Event(), threading.Event()
        live.set()

        def produce() -> None:
            for number in range(100_000):
                if not live.is_set():
                    return
                stream.send(x[:20], y[:20])
                if number % 20 == 19:
                    stream.end()
                if number == 60:
                    sent.set()
                if stream.sequence - stream.acked > 200:  # as fast as it is taken
                    acknowledged.acquire(timeout=0.05)

        acknowledged = threading.Semaphore(0)
        producer = in_thread(produce)
        assert sent.wait(SECONDS)
        stream.wait_ack(20)
        server.process.send_signal(signal.SIGTERM)
        for _ in stream_until_refused(stream):
            acknowledged.release()
        live.clear()
        producer.join(SECONDS)
        refused = [told(call) for call in idle]
        stopping.set()  # a file that was half sent when the signal came is taken in to its end
        assert brought.result(SECONDS).created
        assert server.process.wait(GRACE) == 0
        durable = stream.acked
    for asker in askers:
        asker.thread.join(SECONDS)
        assert asker.answered > 0 and asker.refusal is not None
        unreachable = asker.refusal.code is grpc.StatusCode.UNAVAILABLE and "connect" in asker.refusal.message
        assert asker.refusal.reason == "SERVER_NOT_READY" or unreachable, asker.refusal.message
    assert [failure.reason for failure in refused] == ["SERVER_NOT_READY"] * 2
    silent.put(None)
    log = server.log.read_text()
    assert "Traceback" not in log and "incident" not in log
    server.start()
    assert server.learner("b").status.model_version == 1
    with server.stream("a", "producer") as stream:
        assert stream.opened.last_durable_sequence >= durable >= 20


def exported(server: Server) -> bytes:
    parts = server.admin.ExportSnapshot(snap.ExportSnapshotRequest(learner="a"), timeout=SECONDS)
    return b"".join(part.chunk for part in parts)


def in_two_parts(file: bytes, go_on: threading.Event) -> Iterator[snap.ImportSnapshotRequest]:
    half = len(file) // 2
    yield snap.ImportSnapshotRequest(header=snap.ImportHeader(learner="b", size_bytes=len(file)))
    yield snap.ImportSnapshotRequest(chunk=file[:half])
    go_on.wait(SECONDS)
    yield snap.ImportSnapshotRequest(chunk=file[half:])


def stream_until_refused(stream: Any) -> Iterator[None]:
    """Read a Learn stream to its end, which must be the server's refusal to go on."""
    try:
        while True:
            stream._next()
            yield
    except grpc.RpcError as error:
        assert Failure(error).reason == "SERVER_NOT_READY", Failure(error).message
