"""The front's handle of the teaching process: starts it, asks it, starts it again when it died or hangs.

It knows nothing of lanes or lessons. What a process knew is gone with it: whoever asks for a learner of an earlier life
hears that (`TeacherDiedError`), and makes it anew from the journal.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from sharp_server.config.model import LogConfig, ServerConfig
from sharp_server.runtime.child_process import Process, ProcessHandle, spawn
from sharp_server.teaching.life import Life
from sharp_server.teaching.protocol import Answer, Request, TeacherDiedError
from sharp_server.teaching.worker import NAME, run_teacher

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
"""Seconds before a process that died is started again; twice as long each time, until one is ready for work."""
_LONGEST_WAIT = 10.0
"""Whoever asks does not wait for a process that is started as seldom as this."""

Arguments = tuple[str, int, int, LogConfig]
"""What a teacher needs beside its socket: device, threads, niceness, log."""


class Teacher(Protocol):
    """Where learners are taught: a process, or whatever does the same."""

    @property
    def life(self) -> int:
        """Which of its lives it is in, or begins with the next request: what it knew before is gone."""
        ...

    def new_number(self) -> int:
        """For a learner."""
        ...

    def listen(self, on_end: Callable[[], None]) -> None:
        """Say who hears that it died and has forgotten everything."""
        ...

    async def ask(self, request: Request, life: int) -> Answer:
        """Have something done for a learner of this life, or raise what became of it."""
        ...

    def notify(self, request: Request, life: int) -> None:
        """The same for something of which nobody waits for the end."""
        ...


def spawn_teacher(pipe: socket.socket, arguments: Arguments) -> Process:
    """A new Python that runs `run_teacher`."""
    return spawn(run_teacher, (pipe, *arguments), NAME, daemon=True)


class TeacherProcess(ProcessHandle):
    """One teacher at a time."""

    def __init__(self, config: ServerConfig, on_restart: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        # As many threads as predictions have: so a version taught here answers as one that the front loads itself.
        predictor, niceness = config.predictor, config.teaching.niceness
        self._arguments: Arguments = (predictor.device, predictor.threads, niceness, config.log)
        self._patience = config.teaching.watchdog_seconds
        self._on_restart = on_restart
        self._on_end: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        self._life: Life | None = None
        self._lives = 0
        self._closed = False
        self._pause = _FIRST_PAUSE
        self._restarts = 0
        self._restarting: asyncio.TimerHandle | None = None

    def listen(self, on_end: Callable[[], None]) -> None:
        """Say who hears that the process died."""
        self._on_end = on_end

    def launch(self) -> None:
        """Start the process, unless there is one or one is about to be started."""
        if self._life is not None or self._restarting is not None or self._closed:
            return
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = spawn_teacher(theirs, self._arguments)
        except OSError as error:  # no memory, or too many processes
            ours.close()
            log.error("the teacher could not be started: %s", error)
            self._restart_later()
            return
        self._lives += 1
        self._is_now(ready=False)
        self._life = Life(ours, self._arguments[2], self._patience, self._hear_ready, self._hear_end)

    def _hear_ready(self, life: Life) -> None:
        self._is_now(ready=True)
        self._pause = _FIRST_PAUSE
        log.info("the teacher is ready (process %d)", self.pid)

    def _hear_end(self, life: Life) -> None:
        if self._closed:
            return
        self._life = None
        self._is_now(ready=False)
        self.kill()  # if it still runs, it is of no use any more
        log.warning("the teacher died and is started again in %.1f s; predictions go on", self._pause)
        self._restart_later()
        self._restarts += 1
        self._on_restart()
        self._on_end()

    def _restart_later(self) -> None:
        self._restarting = asyncio.get_running_loop().call_later(self._pause, self._restart)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _restart(self) -> None:
        if self._process is not None:
            self._process.join(0)  # it has ended: nobody else asks
        self._restarting = None
        self.launch()

    # ---- requests ---------------------------------------------------------------------------------------------------

    @property
    def life(self) -> int:
        """Which of its lives it is in, or begins with the next request."""
        return self._lives if self._life is not None else self._lives + 1

    def new_number(self) -> int:
        """For a learner."""
        return next(self._numbers)

    async def ask(self, request: Request, life: int) -> Answer:
        """Have something done for a learner of this life; a process that was not started yet is started for it."""
        self.launch()
        while life == self._lives + 1 and not self._closed:
            if self._pause > _LONGEST_WAIT:  # it can't be started at all
                raise TeacherDiedError(at_work=True)
            await asyncio.sleep(_FIRST_PAUSE)
        if self._life is None or life != self._lives:
            await asyncio.sleep(_FIRST_PAUSE if self._closed else 0.0)  # whoever tries again lets others go on
            raise TeacherDiedError(at_work=False)
        return await self._life.ask(request)

    def notify(self, request: Request, life: int) -> None:
        """The same, and nobody waits."""
        if self._life is not None and life == self._lives:
            self._life.ask(request).add_done_callback(lambda done: done.cancelled() or done.exception())

    # ---- its end ----------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """It is not needed any more."""
        self._closed = True
        if self._restarting is not None:
            self._restarting.cancel()
        if self._life is not None:
            self._life.close()
        await super().end()
        self._is_now(ready=False)

    # ---- facts ------------------------------------------------------------------------------------------------------

    @property
    def restarts(self) -> int:
        """How often it had to be started again."""
        return self._restarts
