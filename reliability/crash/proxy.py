"""The line between clients and server: a TCP proxy on loopback that can cut its connections.

A cut is a reset in the middle of whatever is on its way: bytes in the buffers are lost, as when a cable is pulled.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import Self


class Line:
    """Forwards to a port that may change; without one, connections are refused."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.port: int | None = None
        """Of the server that is there now."""
        self._budget: int | None = None
        self._cut = threading.Event()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(5.0)
        self._listener.close()

    def cut(self, after: int, seconds: float) -> bool:
        """Reset whichever connection next carries so many bytes; False if none did within the time."""
        self._cut.clear()
        self._budget = after
        done = self._cut.wait(seconds)
        self._budget = None
        return done

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads = [old for old in self._threads if old.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.05)
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                near, _ = self._listener.accept()
                self._spawn(self._forward, near)

    def _forward(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            if self.port is None:
                return
            with socket.create_connection(("127.0.0.1", self.port)) as far:
                for side in (near, far):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                carried: int | None = None
                while not self._ending.is_set():
                    for source in select.select([near, far], [], [], 0.05)[0]:
                        data = source.recv(4096)
                        if not data:
                            return
                        budget = self._budget
                        carried = None if budget is None else (carried or 0) + len(data)
                        if budget is not None and carried is not None and carried > budget:
                            (far if source is near else near).sendall(data[: len(data) - (carried - budget)])
                            self._reset(near, far)
                            return
                        (far if source is near else near).sendall(data)

    def _reset(self, *sides: socket.socket) -> None:
        for side in sides:
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._budget = None
        self._cut.set()
