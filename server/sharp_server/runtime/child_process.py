"""Processes of the server beside its front: what the front asks of one, and what it asks of the kernel at first.

Must stay light: such a process imports torch only later.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import signal
import time
from collections.abc import Callable
from typing import Protocol

_SECONDS_TO_END = 3.0


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


def spawn(target: Callable[..., None], arguments: tuple[object, ...], name: str, daemon: bool) -> Process:
    """A new Python that runs one function: nothing of the front is in it."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, name=name, daemon=daemon)
    # Ctrl-C reaches every process of a terminal: this one ends when the front says so, from its first moment on.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.start()
    signal.signal(signal.SIGINT, interrupted)
    return process


class ProcessHandle:
    """What the front knows of a process that it started, whatever that does; belongs to the event loop."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._ready = False
        self._since = time.time()

    def _is_now(self, ready: bool) -> None:
        self._ready, self._since = ready, time.time()

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        return self._ready

    @property
    def since(self) -> float:
        """Since when it has been as it is."""
        return self._since

    @property
    def pid(self) -> int:
        """The process; 0: none is ready."""
        return (self._process.pid or 0) if self._process is not None and self._ready else 0

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    async def joined(self, seconds: float) -> None:
        """Wait for its end, but not for ever."""
        if self._process is not None:
            await asyncio.to_thread(self._process.join, seconds)

    async def end(self) -> None:
        """Wait for a process that was asked to stop, then kill it."""
        if self._process is not None:
            await self.joined(_SECONDS_TO_END)
            if self._process.is_alive():
                self._process.kill()
                await self.joined(_SECONDS_TO_END)


def die_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it; elsewhere the closed pipe does."""
    _prctl(1, signal.SIGKILL)


def name_process(name: str) -> None:
    """What `ps` and `top` show, where the kernel can be told so."""
    _prctl(15, ctypes.create_string_buffer(name.encode()))


def _prctl(option: int, value: object) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
