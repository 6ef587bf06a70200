"""How the processes get and return memory from the C library.

In the front, messages of some hundred kilobytes come and go all the time. By default the library returns what was freed
at once and asks for it again with the next message, page by page: a fifth of the processor time of taking batches in.
And Python's collector looks through everything that was imported, torch among it, while requests wait.

In the trainer, an episode leaves nothing behind, but the library keeps the pages of its tensors in a heap in pieces:
the process would grow in steps of a hundred megabytes (`tests/server/training/test_memory.py`).
"""

from __future__ import annotations

import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""

_KEPT_BYTES = 64 << 20
_LARGE_BYTES = 32 << 20
_ARENAS = 2


def keep_freed_memory() -> None:
    """Keep some freed memory for the next message; call it before threads are started. Does nothing beyond glibc."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_ARENA_MAX, _ARENAS)
        adjust(_TRIM_THRESHOLD, _KEPT_BYTES)
        adjust(_MMAP_THRESHOLD, _LARGE_BYTES)


def return_freed_memory() -> None:
    """Give back whatever was freed, wherever it lies; takes milliseconds. Does nothing beyond glibc."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def forget_start_up() -> None:
    """Let the collector leave alone what is there by now: modules, learners and services, which stay anyway."""
    gc.collect()
    gc.freeze()
