"""Which thread of the front runs first where several could: the event loop's, whatever else there is to compute."""

from __future__ import annotations

import contextlib
import os
import sys
import threading


def lower_thread_priority(niceness: int) -> None:
    """Let this thread, and those that it starts, run after the ones that keep their niceness.

    Linux only: elsewhere a thread has none of its own, and threads share the processor as they come.
    """
    if sys.platform == "linux" and niceness:
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
