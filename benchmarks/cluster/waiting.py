"""Waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.errors import BenchmarkError


def until(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Wait until a condition holds; say what was waited for if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"in {seconds:.0f} s it did not come to this: {what}")
        time.sleep(0.05)
