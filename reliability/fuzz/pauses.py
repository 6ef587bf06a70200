"""Notices when everything stood still: a run that was stopped and continued, or a machine that slept.

Deadlines pass meanwhile, and nobody is to blame for that; whatever was under way then is done again.
"""

from __future__ import annotations

import threading
import time

_TICK = 0.5
_LONG = 5.0
"""Seconds between two ticks from which on it was a pause."""


class Pauses:
    """Counts pauses for as long as the process lives."""

    def __init__(self) -> None:
        self.count = 0
        threading.Thread(target=self._watch, name="pauses", daemon=True).start()

    def _watch(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_TICK)
            now = time.monotonic()
            self.count += now - before > _LONG
            before = now

    def since(self, count: int) -> bool:
        """Whether there was one since the count was this."""
        time.sleep(2 * _TICK)  # the pause may just be over, and not counted yet
        return self.count > count
