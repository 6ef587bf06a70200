"""A file that a client brings, chunk by chunk: on disk with the announced size and SHA-256, or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from sharp_server.errors import RpcError
from sharp_server.runtime.threads import BackgroundThread

Chunks = Callable[[], Awaitable[bytes | None]]
"""Gives the next bytes; None after the last."""


async def receive(
    chunks: Chunks,
    path: Path,
    size_bytes: int,
    sha256: bytes,
    malformed: Callable[[str], RpcError],
    thread: BackgroundThread,
) -> bytes:
    """Write what comes to a file; returns its SHA-256. `malformed` makes the refusal of another size than announced.

    An empty `sha256` was not given, and is not compared. The caller deletes the file, whatever happens.
    """
    digest, size = hashlib.sha256(), 0
    file = await thread.run_in_thread(path.open, "wb")
    try:
        while (chunk := await chunks()) is not None:
            size += len(chunk)
            if size > size_bytes:
                raise malformed("more bytes came than were announced")
            digest.update(chunk)
            await thread.run_in_thread(file.write, chunk)
    finally:
        await thread.run_in_thread(file.close)  # which writes what is left
    if size != size_bytes:
        raise malformed(f"{size} bytes came, {size_bytes} were announced")
    if sha256 and digest.digest() != sha256:
        raise RpcError(
            "CHECKSUM_MISMATCH",
            "the bytes that arrived are not those that were announced",
            expected=sha256.hex(),
            found=digest.hexdigest(),
        )
    return digest.digest()
