"""A busy event loop makes calls wait; it must not make gRPC drop them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from sharp_server.config.model import LimitsConfig
from sharp_server.server import transport_options

BUSY_SECONDS = 1.0
CALLS = 3500
"""Beyond gRPC's own hard limit of calls that wait to be accepted."""


@pytest.fixture
def port() -> Iterator[int]:
    """A server with the transport of ours, and a method that keeps its event loop busy."""
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        async def echo(data: bytes, context: Any) -> bytes:
            if data == b"busy":
                time.sleep(BUSY_SECONDS)
            return data

        server, over = grpc.aio.server(options=transport_options(LimitsConfig())), asyncio.Event()
        methods: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", methods),))
        bound = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        started.set_result((bound, asyncio.get_running_loop(), over))
        await over.wait()
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    bound, loop, over = started.result(60)
    yield bound
    loop.call_soon_threadsafe(over.set)
    thread.join(60)


def test_calls_that_come_while_the_event_loop_is_busy_are_answered_and_not_cancelled(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/test.Test/Echo")
        call(b"warm", timeout=60)
        busy = call.future(b"busy", timeout=60)
        time.sleep(0.1)
        calls = [call.future(b"x", timeout=60) for _ in range(CALLS)]
        found = Counter(answer.code() for answer in [busy, *calls])
    assert found == {grpc.StatusCode.OK: CALLS + 1}
