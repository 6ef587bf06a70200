"""One text for all who watch the same thing: written once, a few times a second at most, while anybody watches.

Predictions share the event loop with this, so that ten open pages must cost hardly more than one. A reader that is slow
misses texts and is never waited for: it gets the whole again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import NamedTuple


class Text(NamedTuple):
    """What is sent."""

    whole: bytes
    """For whoever comes, or missed something."""
    change: bytes
    """For whoever has read the text before."""
    happened: int
    """The number of the last event that it takes account of."""


Write = Callable[[Text | None], Awaitable[Text]]
"""Writes the next text, given the one before."""
Pause = Callable[[], Awaitable[bool]]
"""Until it is time for the next text; False: there will be none."""


class Broadcast:
    """Belongs to the event loop."""

    def __init__(self, write: Write, pause: Pause) -> None:
        self._write, self._pause = write, pause
        self.readers = 0
        """How many there are."""
        self._text: Text | None = None
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def texts(self) -> AsyncGenerator[tuple[bytes, int], None]:
        """What one reader is sent, each with the last event it takes account of; ends when there will be no more."""
        with self._reading():
            read = 0
            while True:
                news, running = self._news, self._task
                if self._text is not None and read != self._number:
                    latest = read > 0 and read == self._number - 1
                    read = self._number
                    yield self._text.change if latest else self._text.whole, self._text.happened
                    continue  # others may have been written meanwhile
                if running is None or running.done():
                    if running is not None:
                        running.result()  # says so if it failed
                    return
                await news.wait()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self.readers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers and self._task is not None:
                self._task.cancel()
                self._task, self._text = None, None

    async def _run(self) -> None:
        text: Text | None = None
        going = True
        try:
            while going:
                text = await self._write(text)
                self._text, self._number = text, self._number + 1
                self._wake()
                going = await self._pause()
        finally:
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
