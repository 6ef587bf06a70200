"""Work beside the event loop."""

from __future__ import annotations

import asyncio
import threading

from sharp_server.runtime.threads import BackgroundThread


class Large:
    """Notes which thread frees it."""

    def __init__(self, freed: list[str]) -> None:
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append(threading.current_thread().name)


def test_what_is_discarded_is_freed_in_the_thread() -> None:
    freed: list[str] = []

    async def discard_two() -> None:
        thread = BackgroundThread("freeing")
        first, second = Large(freed), Large(freed)
        thread.discard(first, second)
        del first, second
        while len(freed) < 2:
            await asyncio.sleep(0.01)
        thread.close()

    asyncio.run(asyncio.wait_for(discard_two(), 10.0))
    assert all(name.startswith("freeing") for name in freed)


def test_something_discarded_while_the_server_stops_harms_nobody() -> None:
    problems: list[object] = []

    async def close_first() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        thread = BackgroundThread("freeing")
        thread.discard(Large([]))
        thread.close()
        await asyncio.sleep(0.2)

    asyncio.run(close_first())
    assert problems == []
