"""Work that must not hold up the event loop: a thread that gives way to everything else, and files by the way.

A new version may come a second or two later on a core that predictions fill; they don't wait for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sharp_server.runtime.thread_priority import lower_thread_priority

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS = 19


class BackgroundThread:
    """One thread for what is heavy: loading and saving versions, deleting files; or teaching. One after the other."""

    def __init__(self, name: str = "background", niceness: int = _NICENESS) -> None:
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix=name, initializer=lower_thread_priority, initargs=(niceness,)
        )

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something there and wait for its result."""
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Take nothing more; what runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
