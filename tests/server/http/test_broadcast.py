"""One text for all who watch the same thing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharp_server.http.broadcast import Broadcast, Text


class Made:
    """A broadcast whose texts are numbers, and whose next text comes when it is asked for."""

    def __init__(self, last: int = 1000) -> None:
        self.written = 0
        self.last = last
        self.turn = asyncio.Event()
        self.broadcast = Broadcast(self._write, self._pause)

    async def _write(self, before: Text | None) -> Text:
        self.written += 1
        if self.written == 666:
            raise ValueError("can't be written")
        return Text(b"whole %d" % self.written, b"change %d" % self.written, self.written)

    async def _pause(self) -> bool:
        self.turn.clear()
        await self.turn.wait()
        return self.written < self.last


def eventually(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_text_is_written_once_however_many_read_it() -> None:
    async def story() -> None:
        made = Made()
        async with contextlib.AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(contextlib.aclosing(made.broadcast.texts())) for _ in range(10)]
            assert [await anext(reader) for reader in readers] == [(b"whole 1", 1)] * 10
            made.turn.set()
            assert [await anext(reader) for reader in readers] == [(b"change 2", 2)] * 10
            assert made.written == 2 and made.broadcast.readers == 10
        assert made.broadcast.readers == 0

    eventually(story)


def test_who_comes_late_or_misses_a_text_gets_the_whole() -> None:
    async def story() -> None:
        made = Made()
        quick, slow = made.broadcast.texts(), made.broadcast.texts()
        assert await anext(quick) == await anext(slow) == (b"whole 1", 1)
        for number in (2, 3):
            made.turn.set()
            assert await anext(quick) == (b"change %d" % number, number)
        assert await anext(slow) == (b"whole 3", 3)
        late = made.broadcast.texts()
        assert await anext(late) == (b"whole 3", 3) and made.written == 3
        for reader in (quick, slow, late):
            await reader.aclose()

    eventually(story)


def test_nothing_is_written_while_nobody_watches() -> None:
    async def story() -> None:
        made = Made()
        async with contextlib.aclosing(made.broadcast.texts()) as reader:
            await anext(reader)
        made.turn.set()
        await asyncio.sleep(0.01)
        assert made.written == 1
        async with contextlib.aclosing(made.broadcast.texts()) as reader:
            assert await anext(reader) == (b"whole 2", 2)

    eventually(story)


def test_readers_end_with_the_last_text_and_hear_of_a_fault() -> None:
    async def story() -> None:
        made = Made(last=2)
        reader, other = made.broadcast.texts(), made.broadcast.texts()
        await anext(reader), await anext(other)
        made.turn.set()
        assert await anext(reader) == (b"change 2", 2)
        made.turn.set()
        for ended in (reader, other):
            assert [text async for text, _ in ended] == ([] if ended is reader else [b"change 2"])
        made.written = 665
        with pytest.raises(ValueError, match="can't be written"):
            await anext(made.broadcast.texts())

    eventually(story)
