"""Ends a call that has gone silent."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchdog:
    """Calls something once, from another thread, unless it is reset or stopped in time."""

    def __init__(self, seconds: float, bite: Callable[[], None]) -> None:
        self._seconds, self._bite = seconds, bite
        self._lock = threading.Lock()
        self.bit = False
        """Whether it was too late."""
        self._timer = self._start()

    def reset(self) -> None:
        """Begin to wait anew."""
        with self._lock:
            self._timer.cancel()
            self._timer = self._start()

    def stop(self) -> None:
        """Wait no more."""
        with self._lock:
            self._timer.cancel()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(self._seconds, self._fire)
        timer.daemon = True
        timer.start()
        return timer

    def _fire(self) -> None:
        self.bit = True
        self._bite()
