"""Work that must not hold up the event loop: a thread that gives way to everything else, and files by the way.

A new version may come a second or two later on a core that predictions fill; they don't wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sharp_server.runtime.thread_priority import lower_thread_priority

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS = 19
_SECONDS_IN_USE = 0.1
"""For which answers under way may still hold on to what was replaced."""


class BackgroundThread:
    """One thread for what is heavy: loading and saving versions, deleting files. One after the other."""

    def __init__(self, name: str = "background", niceness: int = _NICENESS) -> None:
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix=name, initializer=lower_thread_priority, initargs=(niceness,)
        )

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something there and wait for its result."""
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def discard(self, *replaced: object) -> None:
        """Let go of what may be large, in the thread and not before others have: to free hundreds of megabytes takes
        tens of milliseconds, which whoever drops the last reference waits for.
        """
        kept = list(replaced)

        def let_go() -> None:
            with contextlib.suppress(RuntimeError):  # it is closed: the process ends
                self._thread.submit(kept.clear)

        asyncio.get_running_loop().call_later(_SECONDS_IN_USE, let_go)

    def close(self) -> None:
        """Take nothing more; what runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
