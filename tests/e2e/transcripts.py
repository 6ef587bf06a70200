"""Records everything a server answers, in a form in which two servers can be compared.

What may differ between a network and the fake's class means (shares, losses, sizes, ids, times) is reduced to whether
it is there, or to how many there are. Everything else stays: kinds of messages, their order, counts, numbers, errors.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from google.protobuf.message import Message

from sharp.v1 import label_pb2, learning_pb2
from sharp_client import SharpError, Transport

PRESENT = frozenset(
    """
    google.protobuf.Timestamp google.protobuf.Duration sharp.v1.LayerStatistics sharp.v1.MemoryStatistics
    sharp.v1.Throughput sharp.v1.Limits sharp.v1.QualityReport
    """.split()
)
"""Messages of which only the presence is compared."""

PRESENT_FIELDS = frozenset(
    """
    Learner.uid Learner.architecture Learner.settings Opened.learner_uid Opened.unlearned_bytes_limit
    Opened.message_bytes_limit Opened.batch_examples_limit Snapshot.id Snapshot.size_bytes Snapshot.sha256
    DeleteSnapshotResponse.size_bytes ForgetClassResponse.ltm_entries ClassSummary.ltm_entries
    EpisodeParked.detail EpisodeParked.attempts ParkedEpisode.size_bytes Backlog.bytes_limit
    ClassScore.distance NearMemory.distance ExportSnapshotResponse.chunk
    GetServerStatusResponse.version GetServerStatusResponse.device TrainerStatus.threads EpisodeStarted.attempts
    """.split()
)
"""Fields of which only the presence is compared."""

LEFT_OUT = frozenset(
    """
    Opened.unlearned_bytes Ack.unlearned_bytes ForgetClassResponse.stm_entries ClassSummary.stm_entries
    EpisodeStatistics.phase_losses EpisodeStatistics.examples_per_second EpisodeStatistics.recruited
    EpisodeStatistics.training_time EpisodeStatistics.layers PredictResponse.time_in_queue
    PredictResponse.time_in_compute Backlog.bytes Backlog.lag Backlog.streams LearnerStatus.layers
    Failure.message Failure.metadata GetServerStatusResponse.data_bytes GetServerStatusResponse.free_bytes
    GetServerStatusResponse.learners TrainerStatus.memory_bytes TrainerStatus.since TrainerStatus.restarts
    TeacherStatus.running TeacherStatus.memory_bytes TeacherStatus.since TeacherStatus.restarts
    ClassScore.vote_share Ack.uncounted_examples Backlog.uncounted_examples
    ClassSummary.quality ClassSummary.quality_before ListQualityResponse.qualities
    """.split()
)
"""Fields that are not compared at all. A share may be 0 of a class far away, and a 0 is not on the wire; when batches
are counted is a matter of time. How many examples are held out, and whether they are enough to measure a version, is
the engine's business."""

COUNTED = frozenset({"PredictResponse.vote_shares", "PredictResponse.distances", "PredictResponse.novelties"})
"""Lists of which only the length is compared."""

UNORDERED = frozenset({"Learner.classes", "EpisodeStatistics.classes", "EpisodeStatistics.new_classes"})
"""Lists whose order depends on the data."""


def visible(message: Message) -> Any:
    """Reduce a message to what two servers must agree on."""
    name = message.DESCRIPTOR.full_name
    if name in PRESENT:
        return "present"
    if name == "sharp.v1.Labels":
        kind = message.WhichOneof("kind")
        return sorted(getattr(message, kind).values, key=str) if kind is not None else []
    plain: dict[str, Any] = {}
    for descriptor, value in message.ListFields():
        key = f"{message.DESCRIPTOR.name}.{descriptor.name}"
        if key in LEFT_OUT or (isinstance(value, label_pb2.Labels) and not visible(value)):
            continue
        if key in PRESENT_FIELDS:
            plain[descriptor.name] = "present"
        elif key in COUNTED:
            plain[descriptor.name] = len(value)
        elif descriptor.message_type is None or not descriptor.is_repeated:
            plain[descriptor.name] = visible(value) if isinstance(value, Message) else value
        elif descriptor.message_type.GetOptions().map_entry:
            plain[descriptor.name] = dict(value)
        else:
            items = [visible(item) for item in value]
            plain[descriptor.name] = sorted(items, key=str) if key in UNORDERED else items
        if not isinstance(plain[descriptor.name], str | int | float | bool | dict | list):
            plain[descriptor.name] = list(plain[descriptor.name])
    return plain


def failure(error: SharpError) -> tuple[Any, ...]:
    """Reduce an error to what a program can decide by."""
    return type(error).__name__, error.code, error.reason, error.retryable, sorted(error.metadata)


@dataclass
class Call:
    """One call: its method, what was answered, and how it failed if it did."""

    method: str
    answers: list[Any] = field(default_factory=list)
    failure: tuple[Any, ...] | None = None

    def add(self, answer: Message) -> None:
        """Note an answer. Progress is thinned out for slow readers, so it is no part of what is compared."""
        if isinstance(answer, learning_pb2.LearnResponse) and answer.event.HasField("progress"):
            return
        shown = visible(answer)
        if isinstance(answer, learning_pb2.LearnResponse) and "ack" in shown:
            self._join_acks(shown["ack"])
        self.answers.append(shown)

    def _join_acks(self, ack: dict[str, Any]) -> None:
        """Let an ack stand for the one before it too, and for its empty marks.

        How many batches reach the disk together is a matter of time, and one ack may stand for many. Between two acks
        that might as well have been one there is nothing but the episodes that the later one says are closed.
        """
        for index in reversed(range(len(self.answers))):
            earlier = self.answers[index]
            if "ack" in earlier:
                marks = self.answers.pop(index)["ack"].get("empty_marks", []) + ack.get("empty_marks", [])
                if marks:
                    ack["empty_marks"] = sorted(set(marks))
                return
            if "closed" not in earlier.get("event", {}):
                return

    def fail(self, error: SharpError) -> None:
        """Note a failure, unless we cancelled the call ourselves."""
        if error.code != "CANCELLED":
            self.failure = failure(error)


class Recorder:
    """A transport that passes everything on to another one, and records the answers."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.calls: list[Call] = []

    def _record(self, method: str, answer: Callable[[], Any]) -> Any:
        call = Call(method)
        self.calls.append(call)
        try:
            answered = answer()
        except SharpError as error:
            call.fail(error)
            raise
        call.add(answered)
        return answered

    def unary(self, method: str, request: Any, timeout: float) -> Any:
        return self._record(method, lambda: self._inner.unary(method, request, timeout))

    def client_stream(self, method: str, requests: Iterator[Any], timeout: float) -> Any:
        return self._record(method, lambda: self._inner.client_stream(method, requests, timeout))

    def stream(self, method: str, requests: Any, timeout: float | None, learner: str = "") -> RecordedStream:
        call = Call(method)
        self.calls.append(call)
        return RecordedStream(call, self._inner.stream(method, requests, timeout))

    def close(self) -> None:
        self._inner.close()


class RecordedStream:
    """The answers of a call, recorded as they are read."""

    def __init__(self, call: Call, inner: Any) -> None:
        self._call, self._inner = call, inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            answer = next(self._inner)
        except SharpError as error:
            self._call.fail(error)
            raise
        self._call.add(answer)
        return answer

    def cancel(self) -> None:
        self._inner.cancel()


class WireStream:
    """A Learn call driven by hand, one message after another, for what the client never does."""

    def __init__(self, transport: Transport, opening: learning_pb2.Open) -> None:
        self._requests: queue.SimpleQueue[learning_pb2.LearnRequest | None] = queue.SimpleQueue()
        self._answers = transport.stream("Learn", iter(self._requests.get, None), None)
        self.send(open=opening)

    def send(self, **message: Any) -> None:
        """Send one message."""
        self._requests.put(learning_pb2.LearnRequest(**message))

    def read_until(self, kind: str) -> None:
        """Read up to and including the next message ("ack", "opened") or event ("learned") of a kind."""
        for answer in self._answers:
            if answer.WhichOneof("message") == kind or answer.event.WhichOneof("event") == kind:
                return
        raise AssertionError(f"the call ended before {kind}")

    def read_failure(self) -> None:
        """Read until the call fails."""
        try:
            for _ in self._answers:
                pass
        except SharpError:
            return
        raise AssertionError("the call did not fail")

    def close(self) -> None:
        """Leave at once."""
        self._answers.cancel()
        self._requests.put(None)
