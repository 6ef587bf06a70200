"""Processes of the server beside its front: what the front asks of one, and what it asks of the kernel at first.

Must stay light: such a process imports torch only later.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Protocol


class Process(Protocol):
    """What is asked of a process that was started."""

    @property
    def pid(self) -> int | None:
        """Its number."""

    def kill(self) -> None:
        """SIGKILL."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, but no longer than that."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


def die_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it; elsewhere the closed pipe does."""
    _prctl(1, signal.SIGKILL)


def name_process(name: str) -> None:
    """What `ps` and `top` show, where the kernel can be told so."""
    _prctl(15, ctypes.create_string_buffer(name.encode()))


def _prctl(option: int, value: object) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
