"""A trainer without a process: the real work of `training.episode_run`, stopped wherever it would say something.

The work runs in a thread that goes on only while the loop waits for it, so there is one order of events. Between two
reports passes time drawn by chance; what the front says meanwhile interrupts the work as it would interrupt the real
one. It can be killed there: its memory is gone, the files that it wrote stay.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from reliability.simulation.world import World
from sharp_server.training.episode_run import Trainer
from sharp_server.training.process import TrainerProcess
from sharp_server.training.protocol import Command, Ready, Report, Stop, Train


class _Killed(BaseException):
    """Ends the work of a trainer that was killed."""


class _Work:
    """A function that runs in a thread, from one report to the next."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="simulated trainer", daemon=True)
        self._thread.start()

    def step(self) -> Report | None:
        """Let it go on until it says something; None: it is done."""
        self._go_on.put(True)
        return self._said.get()

    def kill(self) -> None:
        """End it where it stands."""
        self._go_on.put(False)
        self._thread.join()

    def say(self, report: Report) -> None:
        """Called by the work itself."""
        self._said.put(report)
        self._wait()

    def _wait(self) -> None:
        if not self._go_on.get():
            self._go_on.put(False)  # and whatever it tries to say on its way out
            raise _Killed

    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            self._wait()
            self._function()
        except _Killed:
            return
        self._said.put(None)


class SimulatedTrainer(TrainerProcess):
    """What the front has of its trainer."""

    world: World
    """Set by the class that is made for a schedule."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._there = self._is_ready = False
        self._number = 0
        """Of the process."""
        self._last = 0.0
        """When the newest message arrives."""
        self._trainer: Trainer | None = None
        self._work: _Work | None = None

    def launch(self) -> None:
        """Begin; it is ready a while later."""
        loop = self.world.loop
        self._number += 1
        self._there, self._is_ready, self._last = True, False, 0.0
        _, examples, config, log = self._arguments
        self._trainer = Trainer(self, examples, config, log)  # type: ignore[arg-type]
        loop.call_later(10 * loop.delay(), self._report, Ready(self._number), self._number)

    def _arrival(self) -> float:
        self._last = self.world.loop.arrival(self._last)
        return self._last

    # ---- the front's end --------------------------------------------------------------------------------------------

    def send(self, command: Command | Report) -> None:
        """From the front: a command. From the work itself, to which this is the pipe: a report."""
        if isinstance(command, Command):
            if self._there:
                self.world.loop.call_at(self._arrival(), self._receive, command, self._number)
        elif self._work is not None:
            self._work.say(command)

    def kill(self) -> None:
        """It is gone at once, and the front hears so after everything that it said before."""
        self.drop()
        self.world.loop.call_at(self._arrival(), self._end, self._number)

    def drop(self) -> None:
        """The same, and nobody hears."""
        work, self._work, self._trainer = self._work, None, None
        if work is not None:
            work.kill()

    async def joined(self, seconds: float) -> None:
        """It takes no time to end."""
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Whatever is left of it goes."""
        self.drop()

    def _report(self, report: Report, number: int) -> None:
        if number != self._number or not self._there:
            return
        if isinstance(report, Ready):
            if self._trainer is None:  # killed before
                return
            self._is_ready = True
        self._on_report(report)

    def _end(self, number: int) -> None:
        if number == self._number and self._there:
            self._there = self._is_ready = False
            self._on_end()

    # ---- the trainer's end ------------------------------------------------------------------------------------------

    def _receive(self, command: Command, number: int) -> None:
        if self._trainer is None or number != self._number:
            return
        self._trainer._take(command)
        if self._work is None:
            self._next()

    def _next(self) -> None:
        """Turn to the next command."""
        trainer, loop = self._trainer, self.world.loop
        while trainer is not None and self._work is None:
            try:
                command = trainer._commands.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, Stop):
                self._trainer = None
                loop.call_at(self._arrival(), self._end, self._number)
            elif isinstance(command, Train):
                self._work = _Work(lambda train=command: trainer._carry_out(train))  # type: ignore[misc]
                loop.call_later(loop.delay(), self._go_on, self._work)
            else:
                trainer._carry_out(command)

    def _go_on(self, work: _Work) -> None:
        if work is not self._work:
            return
        report, loop = work.step(), self.world.loop
        if report is None:
            self._work = None
            self._next()
            return
        loop.call_at(self._arrival(), self._report, report, self._number)
        loop.call_later(3 * loop.delay(), self._go_on, work)

    # ---- facts ------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether there is one, as far as the front knows."""
        return self._there

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        return self._is_ready

    @property
    def busy(self) -> bool:
        """Whether it is at an episode."""
        return self._work is not None

    @property
    def pid(self) -> int:
        """The process; 0: none is ready."""
        return self._number if self._is_ready else 0
