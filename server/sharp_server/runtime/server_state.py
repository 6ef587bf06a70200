"""Where the server is in its life, and what that means for calls: which are taken, which are carried through.

Starting → serving → stopping, never back.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from sharp_server.errors import RpcError

T = TypeVar("T")


class Stage(enum.Enum):
    """The three stages of a server's life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


def not_ready(stage: Stage) -> RpcError:
    """The refusal of a call that comes at the wrong time."""
    doing = Stage.STOPPING.value if stage is Stage.STOPPING else Stage.STARTING.value
    return RpcError("SERVER_NOT_READY", f"the server is {doing}", retry=0.5)


class ServerState:
    """The stage that the server is in; belongs to the event loop."""

    def __init__(self) -> None:
        self.started = time.time()
        self._stage = Stage.STARTING
        self._stopping = asyncio.Event()
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def stage(self) -> Stage:
        """The stage it is in."""
        return self._stage

    @property
    def serving(self) -> bool:
        """Whether calls are taken."""
        return self._stage is Stage.SERVING

    @property
    def stopping(self) -> bool:
        """Whether it ends."""
        return self._stopping.is_set()

    def begin_serving(self) -> None:
        """Everything is loaded."""
        self._stage = Stage.SERVING

    def begin_stop(self) -> None:
        """Take no more calls."""
        self._stage = Stage.STOPPING
        self._stopping.set()

    async def wait_until_stopping(self) -> None:
        """Until the server begins to stop."""
        await self._stopping.wait()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry something through to its end even if the client leaves meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def unless_stopping(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait for something that may never come, but not beyond the server's end."""
        task, stopping = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RpcError("SERVER_NOT_READY", "the server is stopping")
            return task.result()
        finally:
            task.cancel()
            stopping.cancel()

    async def finished(self, seconds: float) -> None:
        """Wait for what is being carried through, but not for ever."""
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=seconds)
