"""The front's handle of the trainer process: starts it, sends commands, passes on what it reports, notices its end.

It knows nothing of episodes or learners, and never restarts the process by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.runtime.child_process import Process
from sharp_server.storage.interface import ExampleSource
from sharp_server.training.protocol import Command, Ready, Report
from sharp_server.training.worker import run_trainer

log = logging.getLogger(__name__)

_SECONDS_TO_END = 3.0

Arguments = tuple[Path, ExampleSource, TrainerConfig, LogConfig]
"""What a trainer needs beside its pipe."""


def spawn_trainer(pipe: Connection, arguments: Arguments) -> Process:
    """A new Python that runs `run_trainer`: nothing of the front is in it."""
    alone = arguments[2].processes == 1  # a daemon may not have helpers
    process = multiprocessing.get_context("spawn").Process(
        target=run_trainer, args=(pipe, *arguments), name="sharp-trainer", daemon=alone
    )
    # Ctrl-C reaches every process of a terminal: the trainer ends when the front says so, from its first moment on.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.start()
    signal.signal(signal.SIGINT, interrupted)
    return process


class TrainerProcess:
    """One trainer at a time; belongs to the event loop."""

    def __init__(self, data: Path, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig) -> None:
        self._arguments: Arguments = (data, examples, config, log_config)
        self._process: Process | None = None
        self._pipe: Connection | None = None
        self._ready = False
        self._since = time.time()
        self._on_report: Callable[[Report], None] = lambda report: None
        self._on_end: Callable[[], None] = lambda: None

    def listen(self, on_report: Callable[[Report], None], on_end: Callable[[], None]) -> None:
        """Say who hears what the trainer reports, and that it has ended."""
        self._on_report, self._on_end = on_report, on_end

    def launch(self) -> None:
        """Start the process; called before any object of gRPC is made, and again when it ended."""
        ours, theirs = multiprocessing.Pipe()
        process = spawn_trainer(theirs, self._arguments)
        theirs.close()
        self._process, self._pipe, self._ready, self._since = process, ours, False, time.time()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, ours)

    def _hear(self, pipe: Connection) -> None:
        try:
            report: Report = pipe.recv()
        except (EOFError, OSError):
            self._gone(pipe)
            return
        if isinstance(report, Ready):
            self._ready, self._since = True, time.time()
            log.info("the trainer is ready (process %d)", report.pid)
        self._on_report(report)

    def _gone(self, pipe: Connection) -> None:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()
        if pipe is self._pipe:
            self._pipe, self._ready, self._since = None, False, time.time()
            self._on_end()

    def send(self, command: Command) -> None:
        """Send a command, if anybody is there to hear it."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it died: the reader hears of it
                self._pipe.send(command)

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    async def joined(self, seconds: float) -> None:
        """Wait for the end of the process, but not for ever."""
        if self._process is not None:
            await asyncio.to_thread(self._process.join, seconds)

    async def end(self) -> None:
        """Wait for a process that was asked to stop, then kill it."""
        if self._process is not None:
            await self.joined(_SECONDS_TO_END)
            if self._process.is_alive():
                self._process.kill()
                await self.joined(_SECONDS_TO_END)

    @property
    def alive(self) -> bool:
        """Whether there is one, ready or not."""
        return self._pipe is not None

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
