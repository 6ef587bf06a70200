"""A server of names that knows one, whose address can change at any moment: DNS of a service that moves.

Clients are pointed at it by the address that they are given (`dns://server/name:port`), so that neither this machine's
resolver nor its hosts file is touched. An answer may not be kept: its time to live is zero.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

NAME = "sharp.test"
_HEADER = struct.Struct(">HHHHHH")
_ANSWER = struct.Struct(">HHHIH4s")
_A, _IN = 1, 1
_AUTHORITATIVE_ANSWER = 0x8580
_NAME_OF_THE_QUESTION = 0xC00C


class NameServer:
    """Answers over UDP on loopback while its context lasts."""

    def __init__(self, address: str) -> None:
        """`address`: what the name stands for at first."""
        self.address = address
        self.asked = 0
        """Questions for the address so far."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True, name="name server")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"", self._socket.getsockname())  # it waits for something to read
        self._thread.join(10.0)
        self._socket.close()

    def target(self, port: int) -> str:
        """The address of a server for a client that is to look up its name here."""
        return f"dns://127.0.0.1:{self._socket.getsockname()[1]}/{NAME}:{port}"

    def _run(self) -> None:
        while True:
            question, client = self._socket.recvfrom(512)
            if not question:
                return
            self._socket.sendto(self.answer(question), client)

    def answer(self, message: bytes) -> bytes:
        """To a question for any name: the address; nothing to questions for something else than an address."""
        end = _HEADER.size
        while message[end]:
            end += 1 + message[end]
        end += 5  # the empty label, type and class
        kind = int.from_bytes(message[end - 4 : end - 2], "big")
        header = (int.from_bytes(message[:2], "big"), _AUTHORITATIVE_ANSWER, 1, int(kind == _A), 0, 0)
        found = _HEADER.pack(*header) + message[_HEADER.size : end]
        if kind != _A:
            return found
        self.asked += 1
        return found + _ANSWER.pack(_NAME_OF_THE_QUESTION, _A, _IN, 0, 4, socket.inet_aton(self.address))
