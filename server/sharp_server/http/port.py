"""The port: uvicorn in the front's own event loop. It takes no signals, and stops when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from sharp_server.config.model import ServerConfig
from sharp_server.http.connection import HEAD_BYTES, BoundedConnection

_KEEP_ALIVE_SECONDS = 5
_STOP_SECONDS = 1


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the front's."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedConnection):
                    connection.cut_off_if_slow(now)
        return await super().on_tick(counter)


class HttpPort:
    """Listens for HTTP, with TLS where gRPC has it."""

    def __init__(self, app: Any, config: ServerConfig, tls: ssl.SSLContext | None) -> None:
        settings = uvicorn.Config(
            app,
            http=type("Connection", (BoundedConnection,), {"client_seconds": config.http.client_seconds}),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # garbage from strangers is no news
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=config.http.connections,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        settings.load()
        settings.ssl = tls
        self._server = _Server(settings)
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port."""
        family, kind, protocol, _, address = (
            await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
        self._serving = asyncio.create_task(self._server.serve([listener]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0.005)
        bound: int = listener.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Listen no more; answers under way have a moment to end."""
        if self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait({self._serving})
            self._serving = None
