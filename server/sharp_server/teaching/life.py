"""One life of the teacher's process, as the front sees it: a socket, what was asked through it, what comes back.

Requests are written in one thread and answers read in another, which allocates and fills memory without Python's lock:
however large either is, the event loop and predictions go on. It never starts the process, and never restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sharp_server.runtime.thread_priority import lower_thread_priority
from sharp_server.teaching import wire
from sharp_server.teaching.changes import Receiver, memory_of
from sharp_server.teaching.desk import Changed, Forgotten, Message
from sharp_server.teaching.protocol import Answer, Done, Ready, Refused, Request, TeacherDiedError

log = logging.getLogger(__name__)


class Life:
    """Belongs to the event loop, but for what its two threads do."""

    def __init__(
        self,
        pipe: socket.socket,
        niceness: int,
        patience: float,
        on_ready: Callable[[Life], None],
        on_end: Callable[[Life], None],
    ) -> None:
        """`patience`: seconds without any answer after which it counts as hung."""
        self._pipe, self._niceness, self._on_ready, self._on_end = pipe, niceness, on_ready, on_end
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._asked: deque[asyncio.Future[Answer]] = deque()
        """In the order of the requests, which is that of the answers."""
        self._watchdog: asyncio.TimerHandle | None = None
        """While something is asked."""
        self._ended = False
        self._writer = ThreadPoolExecutor(
            1, thread_name_prefix="teacher-requests", initializer=lower_thread_priority, initargs=(niceness,)
        )
        self._reader = threading.Thread(target=self._read, name="teacher-answers", daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        """Whether the process is gone, as far as the front knows."""
        return self._ended

    def ask(self, request: Request) -> asyncio.Future[Answer]:
        """Have something done. Whoever stops waiting for the answer changes nothing about its being done."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._ended:
            future.set_exception(TeacherDiedError(at_work=False))
            return future
        self._asked.append(future)
        if self._watchdog is None:
            self._watch()
        self._writer.submit(self._write, request)
        return future

    def close(self) -> None:
        """End the connection: the process ends by itself when it notices."""
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)
        self._writer.shutdown(wait=False, cancel_futures=True)

    # ---- in threads -------------------------------------------------------------------------------------------------

    def _write(self, request: Request) -> None:
        try:
            wire.send(self._pipe, request)
        except OSError:
            pass  # it died: the reader hears of it
        except Exception:  # nobody would ever answer
            log.exception("a request to the teacher could not be written")
            self.close()

    def _read(self) -> None:
        lower_thread_priority(self._niceness)
        receivers: dict[int, Receiver] = {}
        try:
            while True:
                answer = self._next(receivers)
                self._later(self._take, answer)
                del answer
        except (EOFError, OSError):
            pass
        except Exception:  # what follows could not be understood either
            log.exception("an answer of the teacher could not be read")
        self._later(self._end)
        receivers.clear()

    def _next(self, receivers: dict[int, Receiver]) -> Ready | Answer | Refused:
        message: Message = wire.receive_head(self._pipe)
        if isinstance(message, Forgotten):
            receivers.pop(message.learner, None)
            return Done()
        if not isinstance(message, Changed):
            return message
        receiver = receivers.setdefault(message.learner, Receiver())
        room = receiver.room_for(message.changes)
        wire.receive_into(self._pipe, [memory_of(tensor) for tensor in room])
        answer: Answer = receiver.read(message.changes, room)
        return answer

    def _later(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)

    # ---- on the event loop ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Give it its time anew, if anything is asked of it."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog = self._loop.call_later(self._patience, self._give_up) if self._asked else None

    def _give_up(self) -> None:
        log.warning("the teacher gave no answer for %.0f s and is killed", self._patience)
        self.close()

    def _take(self, answer: Ready | Answer | Refused) -> None:
        if isinstance(answer, Ready):
            self._watch()
            self._on_ready(self)
            return
        future = self._asked.popleft()
        self._watch()
        if future.done():  # whoever asked has gone
            return
        if isinstance(answer, Refused):
            future.set_exception(answer.error)
        else:
            future.set_result(answer)

    def _end(self) -> None:
        self._ended = True
        self.close()
        self._pipe.close()
        asked, self._asked = self._asked, deque()
        self._watch()
        for place, future in enumerate(asked):
            if not future.done():
                future.set_exception(TeacherDiedError(at_work=place == 0))
        self._on_end(self)
