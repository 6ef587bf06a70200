"""An event loop in virtual time: nothing waits, the clock jumps to whatever comes next, and threads are delays.

What is run in an executor is run here, at a moment between its call and its result, both drawn by chance; an executor
has as many workers as it says. Tasks that can go on at the same moment go on in an order drawn by chance; callbacks
keep theirs, as asyncio promises. Every callback belongs to the life of the server in which it was scheduled (`LIFE`):
when that has ended, none of its callbacks is called any more, and nothing of it is cleaned up. That is a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

LIFE: contextvars.ContextVar[int] = contextvars.ContextVar("LIFE", default=0)
"""The life of the server that code runs in; 0: outside of it."""

_TICK = 1e-6
"""Seconds that a look at the clock takes: no two moments are the same."""


class StuckError(RuntimeError):
    """Nothing is left to happen, and somebody still waits."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs a schedule; made anew for each."""

    def __init__(self, chance: random.Random, longest_delay: float) -> None:
        super().__init__()
        self._chance, self._longest_delay = chance, longest_delay
        self._now = 1_000.0
        self._busy: dict[tuple[int, object], list[float]] = {}
        """Until when each worker of a life's executor has something to do."""
        self._ended: set[int] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self.faults: list[str] = []
        """Exceptions that nobody took."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_fault)

    def time(self) -> float:
        """Virtual seconds."""
        self._now += _TICK
        return self._now

    def delay(self) -> float:
        """How long something takes: mostly little, now and then much."""
        return float(self._chance.random() ** 3 * self._longest_delay)

    def arrival(self, last: float) -> float:
        """When a message that is sent now arrives, where one sent before arrives at `last`: none overtakes another."""
        return max(last + _TICK, self.time() + self.delay())

    # ---- lives ------------------------------------------------------------------------------------------------------

    def end_life(self, life: int) -> None:
        """A server has crashed: nothing of it happens any more."""
        self._ended.add(life)
        self._busy = {key: until for key, until in self._busy.items() if key[0] != life}

    def bury(self) -> None:
        """Let go of the tasks that never ended; for the end of a schedule."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not wait for what it would have waited for
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    with contextlib.suppress(Exception):
                        task.get_coro().close()
            self._tasks.clear()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        self._tasks.append(task)  # one that never ends must not be collected, or it would clean up behind itself
        return task

    def _note_fault(self, loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
        self.faults.append(f"{details.get('message')}: {details.get('exception')!r}")

    # ---- threads ----------------------------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it inline, later; its result comes later still."""
        workers = self._busy.setdefault((LIFE.get(), executor), [0.0] * getattr(executor, "_max_workers", 4))
        worker = workers.index(min(workers))
        future: asyncio.Future[Any] = self.create_future()
        start = max(self._now, workers[worker]) + self.delay()
        workers[worker] = end = start + self.delay()

        def run() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except Exception as raised:
                error = raised
            self.call_at(end, deliver, result, error)

        def deliver(result: Any, error: Exception | None) -> None:
            if future.done():  # whoever asked has gone
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_at(start, run)
        return future

    # ---- one round --------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready:
            if not scheduled:
                raise StuckError("nothing is left to happen")
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        handles = self._in_some_order(list(ready))
        ready.clear()
        for handle in handles:
            if not handle._cancelled and handle._context.get(LIFE, 0) not in self._ended:
                handle._run()

    def _in_some_order(self, handles: list[Any]) -> list[Any]:
        """Some tasks go on a little later than others; everything else keeps its order."""
        later = [
            isinstance(getattr(handle._callback, "__self__", None), asyncio.Task) and self._chance.random() < 0.3
            for handle in handles
        ]
        postponed = [handle for handle, is_later in zip(handles, later, strict=True) if is_later]
        self._chance.shuffle(postponed)
        return [handle for handle, is_later in zip(handles, later, strict=True) if not is_later] + postponed

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no files to listen to."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
