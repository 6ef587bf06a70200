"""What both kinds of learn stream show and decide in the same way; how they wait and send is their own.

Nothing here blocks, sends or locks: `LearnStream` calls it with its lock held, `AsyncLearnStream` between two awaits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from sharp.v1 import learning_pb2

from ._answers import OpenedStream
from ._errors import ClosedError, DeadlineError, SharpError
from ._options import MESSAGE_BYTES, Limits, Retry, Timeout
from ._progress import ProgressDisplay
from ._stream_state import Report, StreamState

LONGEST_PAUSE = 0.5
"""Seconds between two looks at the clock while waiting."""


@dataclass(frozen=True)
class Wait:
    """What a caller waits for."""

    done: Callable[[], bool]
    """Whether it has happened."""
    timeout: float | None
    """Seconds to wait at most. None: no limit."""
    what: str
    """What it is, for the message."""
    even_if_closed: bool = False
    """Whether it may happen after the stream was closed."""


@dataclass(frozen=True)
class StreamOptions:
    """How a learn stream is opened and driven."""

    opening: learning_pb2.Open
    """Its first message."""
    timeout: Timeout
    """How long to wait."""
    retry: Retry
    """How often to reconnect."""
    limits: Limits
    """How much to send and to hold."""
    from_start: bool = False
    """Whether the producer repeats everything from the first batch on."""


class OpenEpisodeWarning(UserWarning):
    """A learn stream was left with examples that no episode has closed: they wait for a boundary."""


class StreamView(Generic[Report]):
    """The common part of a learn stream."""

    def __init__(self, options: StreamOptions, make_report: Callable[[int | None], Report]) -> None:
        self._timeout = options.timeout
        self._largest = max(MESSAGE_BYTES, options.limits.window_bytes // 4)
        self._state: StreamState[Report] = StreamState(
            options.opening, options.limits, options.retry, make_report, options.from_start
        )
        self._generation = 0
        self._closed = False
        self._connect_by = 0.0

    @property
    def stream_id(self) -> str:
        """The id by which the stream can be resumed, by this process or another."""
        return self._state.opening.stream_id

    @property
    def opened(self) -> OpenedStream:
        """What the server said when the stream was last opened."""
        if self._state.opened is None:
            raise ClosedError("the stream is not open yet: use `async with learner.learn() as stream`")
        return self._state.opened

    @property
    def acknowledged(self) -> int:
        """Everything up to this sequence number is durable."""
        return self._state.acknowledged

    @property
    def examples_sent(self) -> int:
        """Examples given to `send`."""
        return self._state.examples_sent

    @property
    def examples_acknowledged(self) -> int:
        """Those of them that are durable."""
        return self._state.examples_acknowledged

    @property
    def open_examples(self) -> int:
        """Examples of the stream that no episode has closed yet."""
        return self._state.open_examples

    def _warn_of_open_examples(self) -> None:
        """Say that what was sent since the last boundary is kept, and known, but learned by no episode yet."""
        count = self._state.open_examples
        if count:
            warnings.warn(
                f"the stream {self.stream_id!r} is left with {count} example{'s'[: count > 1]} in no episode: call "
                "end_episode() after the last of them, or open the stream again by its id and go on",
                OpenEpisodeWarning,
                stacklevel=4,
            )

    @property
    def resumptions(self) -> int:
        """How often the stream broke and was resumed."""
        return self._state.resumptions

    def _pause(self, wait: Wait, started: float) -> float | None:
        """Decide how long to wait before looking again. None: it has happened. Raises when it can't happen any more."""
        state, now = self._state, time.monotonic()
        if self._closed and not wait.even_if_closed:
            raise state.error or ClosedError("the stream was closed")
        if wait.done():
            return None
        if state.error is not None:
            raise state.error
        left = LONGEST_PAUSE if wait.timeout is None else started + wait.timeout - now
        if left <= 0:
            raise DeadlineError(f"waited {wait.timeout:g} s for {wait.what}")
        silence = self._timeout.acknowledge
        if silence is not None and not state.all_acknowledged and now - state.last_heard > silence:
            raise DeadlineError(f"nothing came from the server for {silence:g} s while waiting for {wait.what}")
        return min(LONGEST_PAUSE, left)

    def _all_finished(self, episodes: Sequence[Report] | None, display: ProgressDisplay) -> bool:
        """Show the episodes (all of the stream, if none are given); whether all are finished."""
        waited = self._state.episodes if episodes is None else episodes
        for report in waited:
            display.show(report)
        return all(report.finished for report in waited)

    def _fail(self, error: SharpError) -> None:
        """End the stream with an error, unless it has ended already."""
        if not self._state.finished and self._state.error is None:
            self._state.error = error
        self._closed = True
        self._generation += 1

    def _after_break(self, error: SharpError) -> float | None:
        """Decide after how many seconds to reconnect. None: the stream has failed."""
        delay = self._state.broken(error)
        if self._state.opened is None and time.monotonic() >= self._connect_by:
            self._state.error = error
        return delay


def raise_failure(reports: Sequence[Report]) -> None:
    """Raise the failure of the first episode that was not learned, if there is one."""
    for report in reports:
        failure = report.failure()
        if failure is not None:
            raise failure
