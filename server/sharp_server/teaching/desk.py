"""What the teacher does with a request: has it carried out, and sends what came of it, predictors as changes."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
from dataclasses import dataclass

from sharp_server.errors import redact
from sharp_server.runtime import malloc
from sharp_server.teaching import wire
from sharp_server.teaching.changes import Changes, Sender
from sharp_server.teaching.protocol import Answer, Forget, Known, Lessons, Ready, Refused, Request
from sharp_server.teaching.taught_learners import TaughtLearners


@dataclass(frozen=True)
class Changed:
    """An answer that holds a predictor."""

    learner: int
    changes: Changes


@dataclass(frozen=True)
class Forgotten:
    """The answer to `Forget`: nothing of the learner will be referred to."""

    learner: int


Message = Ready | Answer | Refused | Changed | Forgotten


_MUCH = 4 << 20
"""Bytes of an answer."""


class Desk:
    """Serves the requests of the front, one after the other."""

    def __init__(self, pipe: socket.socket, device: str) -> None:
        self._pipe, self._learners = pipe, TaughtLearners(device)
        self._senders: dict[int, Sender] = {}
        wire.send(pipe, Ready(os.getpid()))

    def serve_next(self) -> None:
        """Wait for a request, and answer it."""
        request: Request = wire.receive_head(self._pipe)
        try:
            answer: Answer | Refused = self._learners.answer(request)
        except Exception as error:  # the front decides what becomes of it
            answer = Refused(_portable(error))
        if isinstance(answer, Known | Lessons):
            sender = self._senders.setdefault(request.learner, Sender())
            changes, values = sender.write(answer)
            wire.send(self._pipe, Changed(request.learner, changes), values)
            if sum(piece.nbytes for piece in values) >= _MUCH:  # the metric was made anew: it took many times as much
                del answer, values
                malloc.return_freed_memory()
        elif isinstance(request, Forget):
            self._senders.pop(request.learner, None)
            wire.send(self._pipe, Forgotten(request.learner))
        else:
            wire.send(self._pipe, answer)


def _portable(error: Exception) -> Exception:
    """The same error, if it stays itself on its way; else one with its words."""
    with contextlib.suppress(Exception):  # an error of some library, which can be made in its own way only
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return RuntimeError(redact(f"{type(error).__name__}: {error}"))
