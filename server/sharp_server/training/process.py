"""The front's handle of the trainer process: starts it, sends commands, passes on what it reports, notices its end.

It knows nothing of episodes or learners, and never restarts the process by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.runtime.child_process import Process, ProcessHandle, spawn
from sharp_server.storage.interface import ExampleSource
from sharp_server.training.protocol import Command, Ready, Report
from sharp_server.training.worker import run_trainer

log = logging.getLogger(__name__)

Arguments = tuple[Path, ExampleSource, TrainerConfig, LogConfig]
"""What a trainer needs beside its pipe."""


def spawn_trainer(pipe: Connection, arguments: Arguments) -> Process:
    """A new Python that runs `run_trainer`."""
    alone = arguments[2].processes == 1  # a daemon may not have helpers
    return spawn(run_trainer, (pipe, *arguments), "sharp-trainer", daemon=alone)


class TrainerProcess(ProcessHandle):
    """One trainer at a time."""

    def __init__(self, data: Path, examples: ExampleSource, config: TrainerConfig, log_config: LogConfig) -> None:
        super().__init__()
        self._arguments: Arguments = (data, examples, config, log_config)
        self._pipe: Connection | None = None
        self._on_report: Callable[[Report], None] = lambda report: None
        self._on_end: Callable[[], None] = lambda: None

    def listen(self, on_report: Callable[[Report], None], on_end: Callable[[], None]) -> None:
        """Say who hears what the trainer reports, and that it has ended."""
        self._on_report, self._on_end = on_report, on_end

    def launch(self) -> None:
        """Start the process; called before any object of gRPC is made, and again when it ended."""
        ours, theirs = multiprocessing.Pipe()
        self._process, self._pipe = spawn_trainer(theirs, self._arguments), ours
        theirs.close()
        self._is_now(ready=False)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, ours)

    def _hear(self, pipe: Connection) -> None:
        try:
            report: Report = pipe.recv()
        except (EOFError, OSError):
            self._gone(pipe)
            return
        if isinstance(report, Ready):
            self._is_now(ready=True)
            log.info("the trainer is ready (process %d)", report.pid)
        self._on_report(report)

    def _gone(self, pipe: Connection) -> None:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()
        if pipe is self._pipe:
            self._pipe = None
            self._is_now(ready=False)
            self._on_end()

    def send(self, command: Command) -> None:
        """Send a command, if anybody is there to hear it."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it died: the reader hears of it
                self._pipe.send(command)

    @property
    def alive(self) -> bool:
        """Whether there is one, ready or not."""
        return self._pipe is not None
