"""Teaching over a stream that reconnects by itself, with threads."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from sharp.v1 import learning_pb2

from ._batching import to_batches
from ._episode import EpisodeState
from ._errors import ClosedError, SharpError
from ._progress import ProgressDisplay
from ._stream_view import StreamOptions, StreamView, Wait, raise_failure
from ._transport import MessageStream, Transport


class EpisodeReport(EpisodeState):
    """What becomes of an episode: look at it at any time, or wait."""

    def __init__(self, mark: int | None, stream: LearnStream) -> None:
        super().__init__(mark)
        self._stream = stream

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> Self:
        """Wait until the episode is learned, with a progress bar if wanted.

        Raises EpisodeParkedError or EpisodeDiscardedError if it is not learned, DeadlineError after `timeout` seconds,
        and what broke the stream if it can't be resumed. Learning continues in any case. An episode without examples
        ends as "empty", with `model_version` 0.
        """
        self._stream.wait(timeout, progress=progress, episodes=[self])
        return self


class LearnStream(StreamView[EpisodeReport]):
    """A learn stream. Use it in a `with` block; its methods may be called from several threads.

    Batches are sent in the background and kept until they are acknowledged, `Limits.window_batches` of them at most: at
    that many, `send` blocks. When the connection breaks, the stream is opened again and continues after what is
    durable, so that each batch is learned once. Leaving the block waits until everything is durable; the reports of the
    episodes are kept up to date in the background until the client is closed.
    """

    def __init__(self, transport: Transport, options: StreamOptions) -> None:
        super().__init__(options, lambda mark: EpisodeReport(mark, self))
        self._transport = transport
        self._changed = threading.Condition()
        self._sending = threading.RLock()
        self._call: MessageStream | None = None
        self._connect_by = time.monotonic() + self._timeout.connect
        self._thread = threading.Thread(target=self._run, name=f"sharp-learn-{options.opening.learner}", daemon=True)
        self._thread.start()
        opened = Wait(lambda: self._state.opened is not None, self._timeout.connect + 1, "the stream to be opened")
        try:
            self._wait_for(opened)
        except BaseException:
            self.cancel()
            raise

    @property
    def episodes(self) -> list[EpisodeReport]:
        """The episodes of this stream in order, including those that the server cut."""
        with self._changed:
            return list(self._state.episodes)

    def send(self, x: Any, y: Any, *, resize: bool = False) -> None:
        """Send labelled examples; returns when they are queued, which is before they are durable.

        `x` and `y`: see `Learner.predict` for what is accepted; one label per example. `resize` lets the server resize
        image files of another size. Raises what is wrong with them before anything is sent, and what broke the stream.
        """
        with self._sending:
            for batch, size, examples in to_batches(x, y, resize, self.opened, self._largest):
                self._wait_for(Wait(functools.partial(self._state.has_room, size), None, "room in the window"))
                with self._changed:
                    self._state.put_batch(batch, size, examples)
                    self._changed.notify_all()

    def end_episode(self) -> EpisodeReport:
        """Mark the end of an episode. Waits for room in the window only; `report.wait()` waits for the rest."""
        with self._sending:
            self._wait_for(Wait(lambda: self._state.has_room(0), None, "room in the window"))
            with self._changed:
                report = self._state.put_mark()
                self._changed.notify_all()
            return report

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is durable."""
        self._wait_for(Wait(lambda: self._state.all_acknowledged, timeout, "acknowledgements"))

    def wait(
        self, timeout: float | None = None, *, progress: bool = False, episodes: list[EpisodeReport] | None = None
    ) -> list[EpisodeReport]:
        """Wait until episodes (all of the stream, if none are given) are learned; see `EpisodeReport.wait`."""
        with ProgressDisplay(progress) as display:
            done = functools.partial(self._all_finished, episodes, display)
            self._wait_for(Wait(done, timeout, "episodes to be learned", even_if_closed=True))
        waited = self.episodes if episodes is None else episodes
        raise_failure(waited)
        return waited

    def close(self, *, follow: bool = True) -> None:
        """Wait until everything is durable, then leave; with `follow`, reports stay up to date in the background."""
        with self._sending:
            if self._closed:
                return
            try:
                self.flush()
            except BaseException:
                self.cancel()
                raise
            self._warn_of_open_examples()
            with self._changed:
                self._closed = True
                if follow and self._state.unfinished and self._state.error is None:
                    self._state.finishing = True
                    self._changed.notify_all()
                    return
            self.cancel()

    def cancel(self) -> None:
        """Leave at once. What is not acknowledged may be lost."""
        with self._changed:
            self._fail(ClosedError("the stream was closed"))
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.cancel()

    def _wait_for(self, wait: Wait) -> None:
        started = time.monotonic()
        with self._changed:
            while (pause := self._pause(wait, started)) is not None:
                self._changed.wait(pause)

    # In the background.

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._state.error is not None:
                    return
                generation = self._generation
            error: SharpError | None
            watchdog = threading.Timer(self._timeout.connect, self._give_up_opening, (generation,))
            watchdog.daemon = True
            try:
                call = self._transport.stream("Learn", self._requests(generation), None, self._state.opening.learner)
                watchdog.start()
                error = self._read(call, watchdog)
            except SharpError as broken:
                error = broken
            except Exception as unexpected:  # a closed channel, or an error of our own: it must not die in a thread
                error = ClosedError(f"the stream can't continue: {unexpected}")
            finally:
                watchdog.cancel()
            with self._changed:
                self._generation += 1  # ends the generator of this call
                self._call = None
                if error is None or self._state.error is not None:
                    self._changed.notify_all()
                    return
                delay = self._after_break(error)
                self._changed.notify_all()
                if delay is not None:
                    self._changed.wait_for(lambda: self._state.error is not None, delay)

    def _read(self, call: MessageStream, watchdog: threading.Timer) -> SharpError | None:
        with self._changed:
            self._call = call
        if self._state.error is not None:
            call.cancel()
        try:
            for response in call:
                watchdog.cancel()
                with self._changed:
                    self._state.receive(response)
                    self._changed.notify_all()
        except SharpError:
            call.cancel()
            raise
        with self._changed:
            return self._state.ended()

    def _give_up_opening(self, generation: int) -> None:
        with self._changed:
            call = self._call if generation == self._generation else None
        if call is not None:
            call.cancel()

    def _requests(self, generation: int) -> Iterator[learning_pb2.LearnRequest]:
        with self._changed:
            request: learning_pb2.LearnRequest | None = self._state.open_request()
        while request is not None:
            yield request
            with self._changed:
                request = None
                while generation == self._generation and not self._state.may_half_close:
                    request = self._state.next_request()
                    if request is not None:
                        break
                    self._changed.wait()
