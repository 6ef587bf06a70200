"""What a server left in its journal, read beside it: from a copy of SQLite's file, or over a session to PostgreSQL.

Looking at it must not help the server that comes after, so nothing is ever written.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from sharp_server.storage.sqlite import schema


class JournalReader(Protocol):
    """Both have the same tables, but for raw examples."""

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query with `?` for its values."""
        ...

    def raw_parts(self) -> int:
        """Slices and lessons whose raw examples are there."""
        ...


@contextlib.contextmanager
def journal_of(data: Path, store: str = "") -> Iterator[JournalReader]:
    """The journal of a data folder as it is now, or of a database where a DSN is given."""
    if store:
        import psycopg

        with psycopg.connect(store, autocommit=True) as session:
            yield _Postgres(session)
        return
    with tempfile.TemporaryDirectory(prefix="sharp-crash-") as folder:
        for name in ("journal.db", "journal.db-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(data / name, Path(folder) / name)
        connection = schema.connect(Path(folder) / "journal.db")
        try:
            yield _Sqlite(connection)
        finally:
            connection.close()


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def raw_parts(self) -> int:
        tables = ("examples", "lesson_examples")
        return sum(int(self.rows(f"SELECT count(*) FROM {name}")[0][0]) for name in tables)


class _Postgres:
    def __init__(self, session: Any) -> None:
        self._session = session

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._session.execute(query.replace("?", "%s"), values).fetchall()
        return found

    def raw_parts(self) -> int:
        tables = self.rows("SELECT tablename FROM pg_tables WHERE tablename ~ '^examples_[0-9]+$'")
        return sum(int(self.rows(f"SELECT count(*) FROM {name}")[0][0]) for (name,) in tables)


def account(journal: JournalReader, learner: int) -> list[tuple[int, str, int, int, int]]:
    """(episode number, its state, sequence, first, count) of every slice that is part of an episode."""
    rows = journal.rows(
        "SELECT e.number, e.state, p.sequence, p.first, p.count FROM batch_slices p JOIN episodes e "
        "ON e.id = p.episode WHERE p.learner = ? ORDER BY p.stream, p.sequence, p.first",
        learner,
    )
    return [(number, state, sequence, first, count) for number, state, sequence, first, count in rows]
