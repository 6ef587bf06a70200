"""Calls that wait for a version of one learner, or for examples to be known: read your own writes."""

from __future__ import annotations

import asyncio

from sharp_server.errors import RpcError

_MOST_WAITING = 1000


class VersionWaiters:
    """A bounded number of calls; each waits for a number that only rises."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, version: int, seconds: float) -> None:
        """Until that number is reached; raises TimeoutError after so many seconds."""
        if len(self._waiting) >= _MOST_WAITING:
            raise RpcError("QUEUE_FULL", "too many calls wait", limit=_MOST_WAITING)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (version, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await future
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def reached(self, version: int) -> None:
        """It is reached."""
        ready = [future for wanted, future in self._waiting if wanted <= version]
        self._waiting = [(wanted, future) for wanted, future in self._waiting if wanted > version]
        for future in ready:
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """It will not be."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
