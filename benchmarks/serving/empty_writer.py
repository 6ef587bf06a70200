"""The floor of teaching: a process that makes so many empty lessons a second durable, and nothing else.

It writes beside the journal, with the journal's settings, on the front's core: less than that no front can do for a
label that is on disk when it is acknowledged.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

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


def main() -> None:
    """Write until the input ends: `FOLDER LESSONS_PER_SECOND BYTES`."""
    folder, rate, size = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    end = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        end.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with empty_journal(folder) as connection:
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        begun, written, block = time.perf_counter(), 0, os.urandom(size)
        while not end.wait(max(0.0, begun + written / rate - time.perf_counter())):
            write(connection, block)
            written += 1


if __name__ == "__main__":
    main()
