"""What a schedule's processes share: chance, the clock, and a disk that outlives them and may be full.

While a schedule runs, time and made-up names come from here, for all code of the process; it must leave everything as
it found it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import secrets
import sqlite3
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from reliability.simulation.loop import VirtualLoop
from sharp_server.storage.sqlite import schema

_NOTES = """CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, learner TEXT NOT NULL, what TEXT NOT NULL,
    writer TEXT NOT NULL)"""


@dataclass(frozen=True)
class Note:
    """What one transaction did."""

    number: int
    kind: str
    learner: str
    what: dict[str, Any]
    writer: str
    """The owner in whose name it was done, where servers share the journal."""


class Disk:
    """The journal's database, which is durable, and whether there is room."""

    def __init__(self) -> None:
        self.full = False
        self.writer = ""
        self.connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=_Connection
        )
        assert isinstance(self.connection, _Connection)
        schema.create(self.connection)
        self.connection.execute(_NOTES)
        self.connection.disk = self

    def note(self, kind: str, learner: str, **what: Any) -> None:
        """Write down what a transaction did, within that very transaction: it is history if and only if that is."""
        self.connection.execute(
            "INSERT INTO notes (kind, learner, what, writer) VALUES (?, ?, ?, ?)",
            (kind, learner, json.dumps(what), self.writer),
        )

    def notes(self) -> list[Note]:
        """History, in the order of the commits."""
        rows = self.connection.execute("SELECT id, kind, learner, what, writer FROM notes ORDER BY id")
        return [Note(number, kind, learner, json.loads(what), writer) for number, kind, learner, what, writer in rows]

    @property
    def newest(self) -> int:
        """Number of the newest note."""
        return int(self.connection.execute("SELECT coalesce(max(id), 0) FROM notes").fetchone()[0])


class _Connection(sqlite3.Connection):
    """A connection whose commits find no room while the disk is full."""

    disk: Disk | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.disk is not None and self.disk.full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *parameters)


class World:
    """One schedule's."""

    def __init__(self, seed: int, folder: Path, longest_delay: float, disk: Disk | None = None) -> None:
        self.seed, self.folder = seed, folder
        self.chance = random.Random(f"schedule {seed}")
        self.loop = VirtualLoop(random.Random(f"loop {seed}"), longest_delay)
        self.disk = disk if disk is not None else Disk()
        self._names = random.Random(f"names {seed}")
        self._fsync = os.fsync

    def evidence(self, snapshot: str) -> Path:
        """Where the file of a version is kept for the verdict, whatever the server does with it."""
        folder = self.folder.parent / "evidence"
        folder.mkdir(exist_ok=True)
        return folder / snapshot

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Its time and its names are everybody's meanwhile."""
        with (
            mock.patch.multiple(time, monotonic=self.loop.time, perf_counter=self.loop.time, time=self.loop.time),
            mock.patch.object(secrets, "token_hex", lambda size: self._names.randbytes(size).hex()),
            mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(bytes=self._names.randbytes(16))),
            mock.patch.object(os, "fsync", self._flush),
        ):
            yield

    def _flush(self, handle: Any) -> None:
        """As quick as can be: what survives is decided here, not by a disk. A full one has no room for a file."""
        if self.disk.full and stat.S_ISREG(os.fstat(handle if isinstance(handle, int) else handle.fileno()).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
