"""A file that comes as a stream of messages: a header first, then its bytes."""

from __future__ import annotations

from typing import Any

import grpc

from sharp_server.errors import RpcError
from sharp_server.learners.arrival import Chunks
from sharp_server.runtime.server_state import ServerState


async def incoming_file(context: Any, state: ServerState) -> tuple[Any, Chunks]:
    """The header of the file, and its bytes one chunk after the other; anything else is refused."""
    first = await state.unless_stopping(context.read())
    kind = None if first is grpc.aio.EOF else first.WhichOneof("part")
    if kind != "header":
        message = "the first message must be the header"
        raise RpcError("UNEXPECTED_MESSAGE", message, expected="header", found=kind or "nothing")

    async def chunks() -> bytes | None:
        message = await context.read()
        if message is grpc.aio.EOF:
            return None
        found = message.WhichOneof("part")
        if found == "header":
            text = "a header can only be the first message"
            raise RpcError("UNEXPECTED_MESSAGE", text, expected="chunk", found="header")
        if found is None or not message.chunk:
            raise RpcError("FIELD_INVALID", "an empty part", fields=("chunk",), field="chunk")
        chunk: bytes = message.chunk
        return chunk

    return first.header, chunks
