"""The implementations of `interface.Storage`: another one joins the contract tests by a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from sharp_server.storage.interface import Storage
from sharp_server.storage.postgres.storage import PostgresStorage
from sharp_server.storage.sqlite.storage import SqliteStorage
from tests.postgres import database_of, postgres


@dataclass(frozen=True)
class Implementation:
    make: Callable[[Path], Storage]
    """One that keeps what it has by the name of a folder."""
    bytes_on_disk: Callable[[Path], bytes]
    """Everything that its tables hold on disk, used or not."""


def _files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def _tables(folder: Path) -> bytes:
    """The files of a database, without PostgreSQL's write-ahead log: what that keeps is said in docs/operations.md."""
    with psycopg.connect(database_of(folder), autocommit=True) as session:
        session.execute("CHECKPOINT")
        row = session.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return _files(postgres().data / "base" / str(row[0]))


IMPLEMENTATIONS = {
    "sqlite": Implementation(lambda folder: SqliteStorage(folder / "journal.db"), _files),
    "postgres": Implementation(lambda folder: PostgresStorage(database_of(folder)), _tables),
}
