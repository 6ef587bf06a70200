"""The load generator: a process that asks and measures. Takes orders as JSON lines, answers each with its figures.

Requests are sent as bytes and answers are not looked into, so that this side costs as little as Python allows; the cost
is the same for whoever is asked.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from sharp.v1 import label_pb2, learning_pb2, learning_pb2_grpc, tensor_pb2

PREDICT = "/sharp.v1.Prediction/Predict"
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
_TIMEOUT = 60.0


class _Tally:
    """Counts answers; used from gRPC's threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.under_way = 0
        self.failures: dict[str, int] = {}
        self.messages: dict[str, str] = {}
        """By code, what the first failure with it said."""
        self.latencies: list[float] = []

    def sent(self) -> None:
        with self._changed:
            self.under_way += 1

    def done(self, call: Any, since: float) -> None:
        took = time.perf_counter() - since
        code = call.code().name
        with self._changed:
            if code == "OK":
                self.latencies.append(took)
            else:
                self.failures[code] = self.failures.get(code, 0) + 1
                self.messages.setdefault(code, call.details() or "")
            self.under_way -= 1
            if not self.under_way:
                self._changed.notify_all()

    def wait(self) -> None:
        """Until every request was answered: a channel closed before would itself cancel those under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self.under_way)


def closed_loop(call: Any, payload: bytes, in_flight: int, seconds: float) -> _Tally:
    """So many requests under way at any time: each answer is followed by the next request."""
    tally = _Tally()
    end = time.perf_counter() + seconds

    def ask() -> None:
        tally.sent()
        since = time.perf_counter()
        call.future(payload, timeout=_TIMEOUT).add_done_callback(lambda done: answered(done, since))

    def answered(done: Any, since: float) -> None:
        if time.perf_counter() < end:
            ask()
        tally.done(done, since)

    for _ in range(in_flight):
        ask()
    tally.wait()
    return tally


def fixed_rate(call: Any, payload: bytes, rate: float, seconds: float) -> _Tally:
    """A request every 1 / rate seconds, whatever became of those before; latency counts from when it was due."""
    tally = _Tally()
    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        tally.sent()
        call.future(payload, timeout=_TIMEOUT).add_done_callback(lambda done, due=due: tally.done(done, due))
    tally.wait()
    return tally


@contextlib.contextmanager
def _at_once() -> Iterator[bool]:
    """Run whenever there is something to do, whoever else computes on the core: what we wait for it is no latency of
    the server's. Gives whether that is allowed; not for loads that fill the core, which the system would hold back.
    """
    ahead: list[int] = []
    with contextlib.suppress(OSError, AttributeError):
        for thread in map(int, os.listdir("/proc/self/task")):
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
            ahead.append(thread)
    try:
        yield bool(ahead)
    finally:
        for thread in ahead:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def ask_for_predictions(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order to predict."""
    payload = base64.b64decode(order["payload"])
    with grpc.insecure_channel(order["address"], _OPTIONS) as channel:
        call: Any = channel.unary_unary(PREDICT)
        call(payload, timeout=_TIMEOUT, wait_for_ready=True)
        cpu, wall, at_once = time.process_time(), time.perf_counter(), False
        if "rate" in order:
            with _at_once() as at_once:
                tally = fixed_rate(call, payload, order["rate"], order["seconds"])
        else:
            tally = closed_loop(call, payload, order["in_flight"], order["seconds"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "seconds": wall,
        "cpu": cpu,
        "latencies": tally.latencies,
        "failures": tally.failures,
        "messages": tally.messages,
        "at_once": at_once,
    }


def send_batches(order: dict[str, Any]) -> dict[str, Any]:
    """Teach batches without ending an episode, and wait until the last one is durable."""
    batches, (examples, width) = order["batches"], order["shape"]
    block = os.urandom(examples * width)  # nothing on the way could make it smaller
    labels = label_pb2.Labels(integers=label_pb2.IntegerLabels(values=[i % 10 for i in range(examples)]))
    opened = threading.Event()

    def requests() -> Iterator[learning_pb2.LearnRequest]:
        opening = learning_pb2.Open(learner=order["learner"], stream_id="load")
        yield learning_pb2.LearnRequest(open=opening)
        opened.wait()
        for sequence in range(1, batches + 1):
            tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_UINT8, shape=(examples, width), data=block)
            batch = learning_pb2.Batch(sequence=sequence, inputs=tensor_pb2.Inputs(tensor=tensor), labels=labels)
            yield learning_pb2.LearnRequest(batch=batch)

    acknowledgements, begun, ended = 0, 0.0, 0.0
    with grpc.insecure_channel(order["address"], _OPTIONS) as channel:
        for answer in learning_pb2_grpc.LearningStub(channel).Learn(requests(), timeout=10 * _TIMEOUT):
            if answer.HasField("opened"):
                begun = time.perf_counter()
                opened.set()
            elif answer.HasField("ack"):
                acknowledgements += 1
                if answer.ack.sequence == batches:
                    ended = time.perf_counter()
                    break
    return {"seconds": ended - begun, "acknowledgements": acknowledgements}


def main() -> None:
    """Obey until the input ends."""
    with contextlib.suppress(OSError):  # a generator that waits for the trainer's turn would measure that
        os.nice(-10)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        answer = send_batches(order) if "batches" in order else ask_for_predictions(order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
