"""A learn stream without input and output: what was sent, what is durable, what to send again.

The threads of `LearnStream` and the tasks of `AsyncLearnStream` both drive this one object. Nothing here blocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sharp.v1 import learning_pb2

from ._answers import EpisodeEvent, OpenedStream
from ._episode import EpisodeState
from ._errors import ServerFaultError, SharpError, StreamLostError, UnavailableError
from ._options import Limits, Retry
from ._reasons import (
    DiskFullError,
    LearnerBusyError,
    NotOwnerError,
    OwnerUnreachableError,
    SequenceGapError,
    ServerNotReadyError,
    StoreUnavailableError,
    TooManyStreamsError,
)

Report = TypeVar("Report", bound=EpisodeState)

RESUMED_REASONS = (
    ServerNotReadyError,
    NotOwnerError,
    OwnerUnreachableError,
    StoreUnavailableError,
    TooManyStreamsError,
    LearnerBusyError,
    DiskFullError,
    SequenceGapError,
)
"""After these the stream is opened again; other reasons mean that something must change first."""

RESUMED_CODES = frozenset({"UNAVAILABLE", "UNKNOWN", "INTERNAL", "CANCELLED", "ABORTED", "DEADLINE_EXCEEDED"})
"""What a broken connection looks like, where the server gave no reason."""


@dataclass(frozen=True)
class _Pending:
    sequence: int
    request: learning_pb2.LearnRequest
    size: int
    examples: int


class StreamState(Generic[Report]):
    """One learn stream, over as many calls as it takes."""

    def __init__(
        self,
        opening: learning_pb2.Open,
        limits: Limits,
        retry: Retry,
        make_report: Callable[[int | None], Report],
        from_start: bool = False,
    ) -> None:
        """Start. `from_start`: the producer starts over; what is durable already is numbered and not sent."""
        self.opening = opening
        self.opened: OpenedStream | None = None
        self.acknowledged = 0
        self.examples_sent = 0
        self.examples_acknowledged = 0
        self.open_examples = 0
        """Sent or found open, and in no episode yet, as far as this side knows."""
        self.unlearned_bytes = 0
        self.episodes: list[Report] = []
        self.error: SharpError | None = None
        self.finishing = False
        self.finished = False
        self.resumptions = 0
        self.last_heard = time.monotonic()
        self._limits, self._retry, self._make_report = limits, retry, make_report
        self._from_start = from_start
        self._durable_at_start = 0
        self._closed_before: dict[int, Report] = {}
        self._empty_before: set[int] = set()
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._next_sequence = 1
        self._connected = False
        self._sent_in_call = 0
        self._last_closed = self._last_mark = 0
        self._by_mark: dict[int, Report] = {}
        self._by_episode: dict[int, Report] = {}
        self._failures = 0
        self._broken_since: float | None = None

    # What the caller does.

    def has_room(self, size: int) -> bool:
        """Whether one more message of a size fits the window."""
        if not self._pending:
            return True
        limits = self._limits
        return len(self._pending) < limits.window_batches and self._pending_bytes + size <= limits.window_bytes

    def put_batch(self, batch: learning_pb2.Batch, size: int, examples: int) -> None:
        """Give a batch the next number and queue it."""
        batch.sequence = self._next_sequence
        self._put(learning_pb2.LearnRequest(batch=batch), size, examples)
        self.examples_sent += examples
        self.open_examples += examples

    def put_mark(self) -> Report:
        """Queue the end of the episode."""
        mark = self._last_mark = self._next_sequence
        self.open_examples = 0
        known = self._closed_before.pop(mark, None)
        report = known or self._make_report(mark)
        if known is not None:
            report.mark = mark
        elif mark in self._empty_before:
            report.state = "empty"
        else:
            self._by_mark[mark] = report
        if known is None:
            self.episodes.append(report)
        self._put(learning_pb2.LearnRequest(end_episode=learning_pb2.EndEpisode(sequence=mark)), 16, 0)
        return report

    def _put(self, request: learning_pb2.LearnRequest, size: int, examples: int) -> None:
        if not self._pending:
            self.last_heard = time.monotonic()  # from now on something is waited for
        if self._next_sequence <= self._durable_at_start:
            self.examples_acknowledged += examples  # by an earlier run
        else:
            self._pending.append(_Pending(self._next_sequence, request, size, examples))
            self._pending_bytes += size
        self._next_sequence += 1

    @property
    def all_acknowledged(self) -> bool:
        """Whether everything that was sent is durable."""
        return not self._pending

    @property
    def unfinished(self) -> list[Report]:
        """The episodes that are not learned, parked, discarded or empty yet."""
        return [report for report in self.episodes if not report.finished]

    # What the driver does.

    def open_request(self) -> learning_pb2.LearnRequest:
        """Write the request that opens a call, the first or a later one."""
        self._connected = False
        opening = learning_pb2.Open()
        opening.CopyFrom(self.opening)
        if self.opened is None:
            if self._from_start:
                opening.replay_after_sequence = 0
        else:
            # What became of unfinished episodes, and of cuts that the server made while the connection was down.
            waiting = [report.mark for report in self.unfinished if report.mark is not None]
            waiting += [report.closed.last_sequence for report in self.unfinished if report.closed is not None]
            opening.replay_after_sequence = min([self._last_closed, *(number - 1 for number in waiting)])
        return learning_pb2.LearnRequest(open=opening)

    def next_request(self) -> learning_pb2.LearnRequest | None:
        """Get the next message to send in this call. None: nothing now."""
        if not self._connected or self._sent_in_call >= len(self._pending):
            return None
        self._sent_in_call += 1
        return self._pending[self._sent_in_call - 1].request

    @property
    def may_half_close(self) -> bool:
        """Whether this side has nothing more to send, ever."""
        return self.finishing and self._connected and not self._pending

    def receive(self, response: learning_pb2.LearnResponse) -> None:
        """Apply one message of the server."""
        self.last_heard = time.monotonic()
        kind = response.WhichOneof("message")
        if kind == "opened":
            self._receive_opened(OpenedStream.decode(response.opened))
        elif kind == "ack":
            self.unlearned_bytes = response.ack.unlearned_bytes
            self._acknowledge(response.ack.sequence)
            self._close_empty_marks(response.ack.empty_marks)
        elif kind == "event":
            self._receive_event(EpisodeEvent.decode(response.event))

    def _receive_opened(self, opened: OpenedStream) -> None:
        durable = opened.last_durable_sequence
        if self.opened is None:
            self.acknowledged = self._last_closed = durable
            if self._from_start:
                self._durable_at_start = durable
            else:
                self._next_sequence = durable + 1
                self.open_examples = opened.open_examples
        else:
            self.resumptions += 1
            if opened.learner_uid != self.opened.learner_uid:
                raise StreamLostError(f"the learner {self.opening.learner!r} was deleted and created again")
            if not self.acknowledged <= durable <= self._last_known:
                raise StreamLostError(
                    f"the server has the stream up to {durable}, but had acknowledged {self.acknowledged} "
                    f"of {self._last_known}"
                )
        self.opened = opened
        self.unlearned_bytes = opened.unlearned_bytes
        self._connected, self._sent_in_call = True, 0
        self._acknowledge(durable)
        if not self._pending:
            self._broken_since = None

    @property
    def _last_known(self) -> int:
        return max(self._next_sequence - 1, self._durable_at_start)

    def _acknowledge(self, sequence: int) -> None:
        if sequence > self._last_known:
            raise StreamLostError(f"the server acknowledged {sequence}, but only {self._last_known} was sent")
        while self._pending and self._pending[0].sequence <= sequence:
            done = self._pending.popleft()
            self._pending_bytes -= done.size
            self.examples_acknowledged += done.examples
            self._sent_in_call = max(0, self._sent_in_call - 1)
            self._failures, self._broken_since = 0, None
        self.acknowledged = max(self.acknowledged, sequence)

    def _close_empty_marks(self, marks: Iterable[int]) -> None:
        for mark in marks:
            report = self._by_mark.pop(mark, None)
            if report is not None:
                report.state = "empty"
            elif mark >= self._next_sequence:  # of an earlier run, which this one repeats from the start
                self._empty_before.add(mark)

    def _receive_event(self, event: EpisodeEvent) -> None:
        report = self._by_episode.get(event.episode)
        if report is None:
            if event.closed is None:
                return  # of an episode that was closed before this stream was resumed
            by_mark = event.closed.closed_by == "mark"
            report = self._by_mark.pop(event.closed.last_sequence, None) if by_mark else None
            if not by_mark and event.closed.last_sequence > self._last_mark:
                self.open_examples = max(0, self.open_examples - event.closed.examples)
            if report is None:
                report = self._make_report(None)
                self.episodes.insert(len(self.episodes) - len(self._by_mark), report)
                if by_mark:
                    self._closed_before[event.closed.last_sequence] = report
            self._by_episode[event.episode] = report
        report.apply(event)
        if event.closed is not None:
            self._last_closed = max(self._last_closed, event.closed.last_sequence)

    def ended(self) -> SharpError | None:
        """The call ended with OK: fine once all episodes are finished, a broken connection otherwise."""
        if self.finishing and self._connected and not self._pending and not self.unfinished:
            self.finished = True
            return None
        return UnavailableError("the server ended the stream early", code="UNAVAILABLE", retryable=True)

    def broken(self, error: SharpError) -> float | None:
        """The call broke: returns after how many seconds to open the next one. None: the stream has failed."""
        self._connected, self._sent_in_call = False, 0
        now = time.monotonic()
        self._broken_since = self._broken_since or now
        resumable = isinstance(error, RESUMED_REASONS) or (not error.reason and error.code in RESUMED_CODES)
        self._failures += 1
        # A gap is our own error: one that returns after opening again will not go away.
        hopeless = isinstance(error, SequenceGapError | ServerFaultError) and self._failures > self._retry.attempts
        if not resumable or hopeless or now - self._broken_since > self._retry.resume_for:
            self.error = error
            return None
        return self._retry.delay(min(self._failures, 32), error.retry_delay)
