"""The floor of teaching: a service that takes Teach, makes the label durable, and does nothing else with it.

It runs in a process of its own on the front's core and writes beside the journal, with the journal's settings: less
than that no server can do there for a label that is on disk when it is acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import grpc

from sharp.v1 import learning_pb2, learning_pb2_grpc
from sharp_server.runtime import malloc
from sharp_server.storage.sqlite import schema


@contextmanager
def empty_journal(folder: Path) -> Iterator[Connection]:
    """A database of its own with the journal's tables and settings, deleted in the end."""
    path = folder / f"plain-{uuid.uuid4().hex}.db"
    connection = schema.connect(path)
    schema.create(connection)
    try:
        yield connection
    finally:
        connection.close()
        for part in folder.glob(path.name + "*"):
            part.unlink()


def write(connection: Connection, block: bytes) -> None:
    """Commit one lesson."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO examples (y, x) VALUES (?, ?)", (b"\0\0\0\0", block))
    connection.execute("COMMIT")


class EmptyTeaching(learning_pb2_grpc.LearningServicer):
    """Serves `Teach` of `sharp.v1.Learning` without teaching anything."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def Teach(self, request: Any, context: Any) -> learning_pb2.TeachResponse:  # noqa: N802
        """Answer when it is durable."""
        write(self._connection, request.inputs.tensor.data)
        return learning_pb2.TeachResponse()

    def Learn(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        """Is not measured."""
        raise NotImplementedError


async def serve(folder: Path) -> None:
    """Until the input ends."""
    with empty_journal(folder) as connection:
        server = grpc.aio.server()
        learning_pb2_grpc.add_LearningServicer_to_server(EmptyTeaching(connection), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        malloc.forget_start_up()
        sys.stdout.write(json.dumps({"port": port}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await server.stop(None)


if __name__ == "__main__":
    malloc.keep_freed_memory()
    asyncio.run(serve(Path(sys.argv[1])))
