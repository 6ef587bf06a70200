"""How often something happens, for people: an average over the last seconds."""

from __future__ import annotations

import time

_SECONDS = 10


class Rate:
    """Events per second, over the last ten seconds."""

    def __init__(self) -> None:
        self._counts = [0.0] * (_SECONDS + 1)
        self._second = int(time.monotonic())

    def add(self, count: float) -> None:
        """Something happened."""
        self._advance()
        self._counts[self._second % len(self._counts)] += count

    def per_second(self) -> float:
        """The average."""
        self._advance()
        return sum(self._counts) / _SECONDS

    def _advance(self) -> None:
        now = int(time.monotonic())
        for second in range(self._second + 1, min(now, self._second + len(self._counts)) + 1):
            self._counts[second % len(self._counts)] = 0.0
        self._second = now
