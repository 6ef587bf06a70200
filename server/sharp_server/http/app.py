"""The HTTP port: /metrics for Prometheus and /healthz for whoever starts containers. GET only, one answer, closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST

_SECONDS = 5.0
_MOST_CONNECTIONS = 64


class HttpPort:
    """A very small HTTP server; nothing that it reads is kept."""

    def __init__(self, metrics: Callable[[], bytes], healthy: Callable[[], bool]) -> None:
        self._metrics, self._healthy = metrics, healthy
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=8192, reuse_port=False)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_SECONDS):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(request))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not speak HTTP, or not in time
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, request: bytes) -> bytes:
        parts = request.split(b"\r\n", 1)[0].split(b" ")
        method, path = (parts[0], parts[1].split(b"?")[0]) if len(parts) == 3 else (b"", b"")
        kind = "text/plain; charset=utf-8"
        if method not in (b"GET", b"HEAD"):
            status, body = "405 Method Not Allowed", b"only GET\n"
        elif path == b"/metrics":
            status, body, kind = "200 OK", self._metrics(), CONTENT_TYPE_LATEST
        elif path == b"/healthz":
            healthy = self._healthy()
            status, body = ("200 OK", b"ok\n") if healthy else ("503 Service Unavailable", b"not ready\n")
        else:
            status, body = "404 Not Found", b"/metrics or /healthz\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if method == b"HEAD" else body)
