"""A process that holds many connections at the same time and asks over each of them now and then.

Takes one order as a JSON line, reports when all connections are up, holds them until its input ends, and then reports
how its calls ended.
"""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import sys
from collections import Counter
from typing import Any

import grpc

from benchmarks.serving.load_generator import PREDICT

_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
_TIMEOUT = 60.0


async def hold(order: dict[str, Any], ended: asyncio.Event) -> dict[str, Any]:
    """Connect, ask once over every connection, then again and again in turn until asked to end."""
    codes: Counter[str] = Counter()
    messages: dict[str, str] = {}
    data = base64.b64decode(order["payload"])
    channels = [grpc.aio.insecure_channel(order["address"], _OPTIONS) for _ in range(order["connections"])]

    async def ask(channel: grpc.aio.Channel) -> None:
        call: Any = channel.unary_unary(PREDICT)
        try:
            await call(data, timeout=_TIMEOUT, wait_for_ready=True)
            codes["OK"] += 1
        except grpc.aio.AioRpcError as error:
            codes[error.code().name] += 1
            messages.setdefault(error.code().name, error.details() or "")

    for start in range(0, len(channels), 20):  # a few at a time: all at once would be a storm, not idle connections
        await asyncio.gather(*(ask(channel) for channel in channels[start : start + 20]))
    _report({"connected": len(channels)})
    number = 0
    while not ended.is_set():
        await ask(channels[number % len(channels)])
        number += 1
        try:
            await asyncio.wait_for(ended.wait(), order["pause"])
        except TimeoutError:
            continue
    still = sum(channel.get_state() == grpc.ChannelConnectivity.READY for channel in channels)
    await asyncio.gather(*(channel.close() for channel in channels))
    return {"codes": dict(codes), "messages": messages, "still_connected": still}


def _report(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def _main() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    order = json.loads(await loop.run_in_executor(None, sys.stdin.readline))

    def listen() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    loop.run_in_executor(None, listen)
    _report(await hold(order, ended))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_main())
