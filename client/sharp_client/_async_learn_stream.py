"""Teaching over a stream that reconnects by itself, with asyncio. The same as `_learn_stream`, task for thread."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from sharp.v1 import learning_pb2

from ._batching import to_batches
from ._episode import EpisodeState
from ._errors import ClosedError, DeadlineError, SharpError
from ._progress import ProgressDisplay
from ._stream_view import StreamOptions, StreamView, Wait, raise_failure
from ._transport import AsyncMessageStream, AsyncTransport


class AsyncEpisodeReport(EpisodeState):
    """What becomes of an episode: look at it at any time, or wait."""

    def __init__(self, mark: int | None, stream: AsyncLearnStream) -> None:
        super().__init__(mark)
        self._stream = stream

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> Self:
        """Wait until the episode is learned; see `EpisodeReport.wait`."""
        await self._stream.wait(timeout, progress=progress, episodes=[self])
        return self


class _Signal:
    """Wakes everyone who waits for a change. Looking and waiting without an await in between misses nothing."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return


class AsyncLearnStream(StreamView[AsyncEpisodeReport]):
    """A learn stream. Use it in an `async with` block; see `LearnStream`."""

    def __init__(self, transport: AsyncTransport, options: StreamOptions) -> None:
        super().__init__(options, lambda mark: AsyncEpisodeReport(mark, self))
        self._transport = transport
        self._changed = _Signal()
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Open the stream. Entering the block does it."""
        if self._task is not None:
            return self
        self._connect_by = time.monotonic() + self._timeout.connect
        self._task = asyncio.create_task(self._run(), name=f"sharp-learn-{self._state.opening.learner}")
        opened = Wait(lambda: self._state.opened is not None, self._timeout.connect + 1, "the stream to be opened")
        try:
            await self._wait_for(opened)
        except BaseException:
            await self.cancel()
            raise
        return self

    @property
    def episodes(self) -> list[AsyncEpisodeReport]:
        """The episodes of this stream in order, including those that the server cut."""
        return list(self._state.episodes)

    async def send(self, x: Any, y: Any, *, resize: bool = False) -> None:
        """Send labelled examples; see `LearnStream.send`."""
        async with self._sending:
            for batch, size, examples in to_batches(x, y, resize, self.opened, self._largest):
                await self._wait_for(Wait(functools.partial(self._state.has_room, size), None, "room in the window"))
                self._state.put_batch(batch, size, examples)
                self._changed.fire()

    async def end_episode(self) -> AsyncEpisodeReport:
        """Mark the end of an episode. Waits for room in the window only; `await report.wait()` waits for the rest."""
        async with self._sending:
            await self._wait_for(Wait(lambda: self._state.has_room(0), None, "room in the window"))
            report = self._state.put_mark()
            self._changed.fire()
            return report

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is durable."""
        await self._wait_for(Wait(lambda: self._state.all_acknowledged, timeout, "acknowledgements"))

    async def wait(
        self, timeout: float | None = None, *, progress: bool = False, episodes: list[AsyncEpisodeReport] | None = None
    ) -> list[AsyncEpisodeReport]:
        """Wait until episodes (all of the stream, if none are given) are learned; see `EpisodeReport.wait`."""
        with ProgressDisplay(progress) as display:
            done = functools.partial(self._all_finished, episodes, display)
            await self._wait_for(Wait(done, timeout, "episodes to be learned", even_if_closed=True))
        waited = self.episodes if episodes is None else episodes
        raise_failure(waited)
        return waited

    async def close(self, *, follow: bool = True) -> None:
        """Wait until everything is durable, then leave; with `follow`, reports stay up to date in the background."""
        async with self._sending:
            if self._closed:
                return
            try:
                await self.flush()
            except BaseException:
                await self.cancel()
                raise
            self._warn_of_open_examples()
            self._closed = True
            if follow and self._state.unfinished and self._state.error is None:
                self._state.finishing = True
                self._changed.fire()
                return
        await self.cancel()

    async def cancel(self) -> None:
        """Leave at once. What is not acknowledged may be lost."""
        self._fail(ClosedError("the stream was closed"))
        self._changed.fire()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.cancel())

    async def _wait_for(self, wait: Wait) -> None:
        started = time.monotonic()
        while (pause := self._pause(wait, started)) is not None:
            await self._changed.wait(pause)

    # In the background.

    async def _run(self) -> None:
        while self._state.error is None:
            error: SharpError | None
            try:
                error = await self._read(
                    self._transport.stream("Learn", self._requests(self._generation), None, self._state.opening.learner)
                )
            except SharpError as broken:
                error = broken
            except (
                Exception
            ) as unexpected:  # a closed channel, or an error of our own: it must not die unseen in a task
                error = ClosedError(f"the stream can't continue: {unexpected}")
            self._generation += 1  # ends the generator of this call
            if error is None or self._state.error is not None:
                self._changed.fire()
                return
            delay = self._after_break(error)
            self._changed.fire()
            if delay is not None:
                await asyncio.sleep(delay)

    async def _read(self, call: AsyncMessageStream) -> SharpError | None:
        watchdog = asyncio.get_running_loop().call_later(self._timeout.connect, call.cancel)
        try:
            async for response in call:
                watchdog.cancel()
                self._state.receive(response)
                self._changed.fire()
        except asyncio.CancelledError:
            call.cancel()
            current = asyncio.current_task()
            if self._state.error is not None or (current is not None and current.cancelling()):
                raise
            return DeadlineError("the stream was not opened in time", code="DEADLINE_EXCEEDED")  # by the watchdog
        except SharpError:
            call.cancel()
            raise
        finally:
            watchdog.cancel()
        return self._state.ended()

    async def _requests(self, generation: int) -> AsyncIterator[learning_pb2.LearnRequest]:
        request: learning_pb2.LearnRequest | None = self._state.open_request()
        while request is not None:
            yield request
            request = None
            while generation == self._generation and not self._state.may_half_close:
                request = self._state.next_request()
                if request is not None:
                    break
                await self._changed.wait(None)
