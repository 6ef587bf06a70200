"""The teacher without a process: what it is asked is done in an executor, which the simulation's loop runs in virtual
time. It may be killed too: then everything that it knew is gone, and another one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sharp_server.config.model import ServerConfig
from sharp_server.teaching.process import TeacherProcess
from sharp_server.teaching.protocol import Answer, Request, TeacherDiedError
from sharp_server.teaching.taught_learners import TaughtLearners


class InProcessTeacher(TeacherProcess):
    """What the front has of its teacher."""

    def __init__(self, config: ServerConfig, on_restart: Callable[[], None] = lambda: None) -> None:
        super().__init__(config, on_restart)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="teacher")
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._learners = TaughtLearners(self._arguments[0])
        self._died = asyncio.get_running_loop().create_future()

    def launch(self) -> None:
        """It is there already."""

    @property
    def life(self) -> int:
        """Which of its lives it is in."""
        return self._lives

    async def ask(self, request: Request, life: int) -> Answer:
        """Have something done; if it is killed meanwhile, nobody hears what came of it."""
        if life != self._lives:
            raise TeacherDiedError(at_work=False)
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, request, life)
        await asyncio.wait((work, self._died), return_when=asyncio.FIRST_COMPLETED)
        if life != self._lives:
            work.cancel()
            raise TeacherDiedError(at_work=True)
        return await work

    def _answer(self, request: Request, life: int) -> Answer:
        if life != self._lives:  # who is dead does nothing, and writes no file
            raise TeacherDiedError(at_work=False)
        return self._learners.answer(request)

    def notify(self, request: Request, life: int) -> None:
        """The same, and nobody waits."""
        if life == self._lives:
            asyncio.get_running_loop().run_in_executor(self._thread, self._answer, request, life)

    def kill(self) -> None:
        """It is gone, and another one is there at once."""
        self._died.set_result(None)
        self._begin()
        self._on_restart()
        self._on_end()

    async def end(self) -> None:
        """It is not needed any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
