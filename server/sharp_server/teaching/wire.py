"""Messages through a socket between two processes of the server: a pickled head, and memory that travels beside it.

Both ends are the same version of this file: the front starts the teacher. See `changes` for what may be unpickled.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

_LENGTH = struct.Struct("<Q")
_AT_ONCE = 256
"""Pieces of memory per system call."""


def send(pipe: socket.socket, head: object, beside: Sequence[NDArray[Any]] = ()) -> None:
    """Send a message; waits as long as the other end does not read."""
    pickled = pickle.dumps(head, protocol=5)
    pieces = [memoryview(_LENGTH.pack(len(pickled)) + pickled), *(memoryview(piece.data) for piece in beside)]
    _all(pieces, lambda some: pipe.sendmsg(some))


def receive_head(pipe: socket.socket) -> Any:
    """The head of the next message, or EOFError."""
    length = bytearray(_LENGTH.size)
    receive_into(pipe, [memoryview(length)])
    pickled = bytearray(_LENGTH.unpack(length)[0])
    receive_into(pipe, [memoryview(pickled)])
    return pickle.loads(pickled)


def receive_into(pipe: socket.socket, pieces: Sequence[memoryview]) -> None:
    """Fill memory with what travels beside a head, or raise EOFError."""
    _all(list(pieces), lambda some: pipe.recvmsg_into(some)[0])


def _all(pieces: list[memoryview], move: Any) -> None:
    """Move all bytes of some memory, however few go at once."""
    first = 0
    while first < len(pieces):
        moved = move(pieces[first : first + _AT_ONCE])
        if not moved:
            raise EOFError
        while first < len(pieces) and moved >= len(pieces[first]):
            moved -= len(pieces[first])
            first += 1
        if moved:
            pieces[first] = pieces[first][moved:]
