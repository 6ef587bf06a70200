"""A TCP proxy that drops connections, for streams that must survive it."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
from types import TracebackType
from typing import Self


class ChaosProxy:
    """Forwards to a server, and resets each connection after a number of bytes, until it has done so often enough."""

    def __init__(self, target: str, seed: int, drops: int) -> None:
        self._target = int(target.rpartition(":")[2])
        self._random = random.Random(seed)
        self.drops_left = drops
        self.dropped = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.05)
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                near, _ = self._listener.accept()
                self._spawn(self._forward, near)

    def _forward(self, near: socket.socket) -> None:
        budget = self._random.randint(500, 6000) if self.drops_left > 0 else None
        with near, socket.create_connection(("127.0.0.1", self._target)) as far, contextlib.suppress(OSError):
            while not self._stopping:
                for source in select.select([near, far], [], [], 0.05)[0]:
                    data = source.recv(1024)
                    if not data:
                        return
                    if budget is not None:
                        budget -= len(data)
                        if budget <= 0:
                            self.drops_left -= 1
                            self.dropped += 1
                            # A reset, not a polite end: what is in the buffers is lost.
                            for side in (near, far):
                                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            return
                    (far if source is near else near).sendall(data)
