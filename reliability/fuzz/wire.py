"""What reaches a port without being a call: garbage, half-spoken HTTP/2, silence, and streams opened and dropped.

Each attack ends with the server being asked something ordinary; who does not answer that has broken.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from reliability.fuzz import seeds
from reliability.fuzz.answers import Violation
from reliability.fuzz.fuzz_target import FuzzTarget
from sharp.v1 import admin_pb2_grpc as admin
from sharp.v1 import learner_admin_pb2, learning_pb2, prediction_pb2, prediction_pb2_grpc
from sharp.v1 import learning_pb2_grpc as learning
from sharp.v1 import snapshot_pb2 as snap

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SECONDS = 30.0
_LISTEN_SECONDS = 0.3


def frame(kind: int, flags: int, stream: int, body: bytes, length: int | None = None) -> bytes:
    """An HTTP/2 frame; `length` may lie."""
    size = len(body) if length is None else length
    return struct.pack(">I", size)[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def garbage(rng: random.Random) -> Iterator[bytes]:
    """What a scanner, a browser, another protocol or an attacker might send first."""
    settings = frame(4, 0, 0, b"")
    yield rng.randbytes(rng.randint(1, 4000))
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200)
    yield PREFACE + rng.randbytes(2000)
    yield PREFACE + settings + frame(1, 5, 1, rng.randbytes(300))
    yield PREFACE + settings + frame(0, 0, 1, b"x" * 100)
    yield PREFACE + settings + frame(9, 0, 1, b"\x00" * 16_000) * 20  # CONTINUATION without an end
    yield PREFACE + settings + frame(4, 0, 0, struct.pack(">HI", 1, 2**32 - 1) * 2000)
    yield PREFACE + settings + frame(6, 0, 0, b"12345678") * 3000
    yield PREFACE + settings + b"".join(frame(3, 0, i, b"\x00\x00\x00\x08") for i in range(1, 2001, 2))
    yield PREFACE + settings + frame(0, 0, 1, b"", length=2**24 - 1)
    yield PREFACE + settings + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 4
    yield PREFACE[:10]


def http_garbage(rng: random.Random) -> Iterator[bytes]:
    """The same for the HTTP port."""
    yield rng.randbytes(rng.randint(1, 4000))
    yield b"GET /" + b"a" * 100_000
    yield b"GET /../../../etc/passwd HTTP/1.1\r\n\r\n"
    yield b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 10_000
    yield b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n"
    yield b"\r\n\r\n"
    yield b"GET\r\n\r\n"
    yield b"GET /healthz HTTP/9.9\x00\r\n\r\n"
    yield PREFACE


def send_garbage(target: FuzzTarget, rng: random.Random) -> int:
    """Say every kind of nonsense to both ports; returns how many connections were made."""
    said = [(_port(target), saying) for saying in garbage(rng)]
    said += [(target.server.http_port, saying) for saying in http_garbage(rng)]
    with ThreadPoolExecutor(len(said)) as threads:  # together: each is listened to for a while
        for heard in threads.map(_say, *zip(*said, strict=True)):
            if b"Traceback" in heard or target.secret in heard or b"root:" in heard:
                raise Violation(f"the port revealed {heard[:300]!r}")
    still_answers(target)
    return len(said)


def _say(port: int, saying: bytes) -> bytes:
    """Say something on a connection of its own; gives what is heard."""
    heard = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5.0) as connection:
        connection.settimeout(_LISTEN_SECONDS)
        connection.sendall(saying)
        while piece := connection.recv(65536):
            heard += piece
    return heard


def keep_silent(target: FuzzTarget, connections: int) -> int:
    """Connect and say nothing, or almost nothing, while others are served."""
    with contextlib.ExitStack() as stack:
        for i in range(connections):
            port = target.server.http_port if i % 4 == 3 else _port(target)
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
            connection.sendall((b"", b"P", PREFACE, b"GET /metr")[i % 4])
        still_answers(target, http=False)  # silence may fill the HTTP port for some seconds, never the other one
    return connections


def drop_streams(target: FuzzTarget, streams: int, rng: random.Random) -> int:
    """Open streams of every kind and leave them at any moment; afterwards, none may be left over."""
    channel = target.channel
    learn, predict, manage = (
        learning.LearningStub(channel), prediction_pb2_grpc.PredictionStub(channel), admin.AdminStub(channel),
    )  # fmt: skip
    opening = learning_pb2.LearnRequest(open=learning_pb2.Open(learner=seeds.VICTIM, stream_id="dropped"))
    question = prediction_pb2.PredictStreamRequest(
        id=1, request=prediction_pb2.PredictRequest(learner=seeds.PLANTED, inputs=seeds.inputs(1))
    )
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: learn.Learn(_slowly(opening), timeout=_SECONDS),
        lambda: learn.Learn(_slowly(), timeout=_SECONDS),
        lambda: predict.PredictStream(_slowly(question), timeout=_SECONDS),
        lambda: manage.WatchLearner(learner_admin_pb2.WatchLearnerRequest(name=seeds.VICTIM), timeout=_SECONDS),
        lambda: manage.ExportSnapshot(snap.ExportSnapshotRequest(learner=seeds.VICTIM), timeout=_SECONDS),
        lambda: manage.ImportSnapshot.future(_slowly(), timeout=_SECONDS),
    )
    for number in range(streams):
        kind = kinds[number % len(kinds)]
        call = kind()
        if rng.random() < 0.3 and kind is not kinds[-1]:  # that one gives no stream
            with contextlib.suppress(grpc.RpcError, StopIteration):
                next(call)
        call.cancel()
    deadline = time.monotonic() + _SECONDS
    while open_streams(target) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left := open_streams(target):
        raise Violation(f"{left} streams of {seeds.VICTIM} are left over after all were dropped")
    still_answers(target)
    return streams


def open_streams(target: FuzzTarget) -> int:
    """Learn streams that the server still counts for the victim."""
    return target.client.get_learner(seeds.VICTIM).status.backlog.streams


def read_slowly(target: FuzzTarget, questions: int) -> int:
    """Ask without ever reading an answer: the server must stop reading, not pile up answers."""
    request = prediction_pb2.PredictRequest(
        learner=seeds.PLANTED, inputs=seeds.inputs(64), top_k=50, nearest_memories=50, novelty=True
    )
    asked = threading.Semaphore(0)

    def ask() -> Iterator[prediction_pb2.PredictStreamRequest]:
        for number in range(questions):
            asked.release()
            yield prediction_pb2.PredictStreamRequest(id=number, request=request)

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.lookahead_bytes", 65536)]
    with grpc.insecure_channel(target.server.address, options) as channel:
        call = prediction_pb2_grpc.PredictionStub(channel).PredictStream(ask(), timeout=_SECONDS)
        for _ in range(min(questions, 100)):
            asked.acquire(timeout=1.0)
        still_answers(target)
        call.cancel()
    return questions


def still_answers(target: FuzzTarget, http: bool = True) -> None:
    """Ask something ordinary over new connections; a server that can't answer it has broken."""
    if not target.alive:
        raise Violation("the server is no longer there")
    with grpc.insecure_channel(target.server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = prediction_pb2_grpc.PredictionStub(channel)
        request = prediction_pb2.PredictRequest(learner=seeds.PLANTED, inputs=seeds.inputs(2))
        answer = stub.Predict(request, timeout=_SECONDS, wait_for_ready=True)
        if list(answer.labels.integers.values) != [0, 1]:
            raise Violation(f"a planted learner answered {list(answer.labels.integers.values)}")
    if http:
        address = f"http://127.0.0.1:{target.server.http_port}/healthz"
        with urllib.request.urlopen(address, timeout=_SECONDS) as reply:
            if reply.status != 200:
                raise Violation(f"/healthz answered {reply.status}")


def _port(target: FuzzTarget) -> int:
    return int(target.server.address.rpartition(":")[2])


def _slowly(*first: Any) -> Iterator[Any]:
    """Messages, then a writer that never comes to its end; it leaves with the process."""
    yield from first
    threading.Event().wait(0.2)


def largest_file_limit() -> int:
    """Let this process open as many connections as the system allows; returns how many."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else os.sysconf("SC_OPEN_MAX")
