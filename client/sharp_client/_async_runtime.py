"""What the generated half of the client needs and can't be translated word by word: the asyncio side of it.

`_runtime` has the same names for threads. Both are written by hand; see `client/generate.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from ._errors import DeadlineError, SharpError
from ._transport import AsyncMessageStream

Batches = Iterable[Any] | AsyncIterable[Any]
"""What `predict_stream` takes."""

CALL_FAILURES = (SharpError, asyncio.CancelledError)
"""How a call ends whose own requests raised: grpc.aio cancels it."""

sleep = asyncio.sleep


async def each(items: Batches) -> AsyncIterator[Any]:
    """Yield the items of either kind of iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def each_within(call: AsyncMessageStream, seconds: float) -> AsyncIterator[Any]:
    """Yield the messages of a call; raises an UNAVAILABLE DeadlineError when none comes for so long."""
    messages = aiter(call)
    while True:
        try:
            message = await asyncio.wait_for(anext(messages), seconds)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            if isinstance(error, SharpError):
                raise
            raise DeadlineError(f"nothing came from the server for {seconds:g} s", code="UNAVAILABLE") from None
        yield message
