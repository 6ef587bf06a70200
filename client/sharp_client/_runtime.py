"""What the generated half of the client needs and can't be translated word by word: the side for threads.

`_async_runtime` has the same names for asyncio. Both are written by hand; see `client/generate.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._errors import DeadlineError, SharpError
from ._transport import MessageStream

Batches = Iterable[Any]
"""What `predict_stream` takes."""

CALL_FAILURES = (SharpError,)
"""How a call ends whose own requests raised."""

sleep = time.sleep
each = iter


def each_within(call: MessageStream, seconds: float) -> Iterator[Any]:
    """Yield the messages of a call; raises an UNAVAILABLE DeadlineError when none comes for so long."""
    watchdog = Watchdog(seconds, call.cancel)
    try:
        for message in call:
            watchdog.stop()
            yield message
            watchdog.restart()
    except SharpError:
        if not watchdog.expired:
            raise
        raise DeadlineError(f"nothing came from the server for {seconds:g} s", code="UNAVAILABLE") from None
    finally:
        watchdog.stop()


class Watchdog:
    """Calls a function once, from another thread, unless it is stopped or restarted in time."""

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._seconds, self._on_expiry = seconds, on_expiry
        self._lock = threading.Lock()
        self.expired = False
        """Whether time ran out."""
        self._timer = self._start()

    def restart(self) -> None:
        """Start waiting again."""
        with self._lock:
            self._timer.cancel()
            self._timer = self._start()

    def stop(self) -> None:
        """Stop waiting."""
        with self._lock:
            self._timer.cancel()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(self._seconds, self._fire)
        timer.daemon = True
        timer.start()
        return timer

    def _fire(self) -> None:
        self.expired = True
        self._on_expiry()
