"""Taking what can be read out of a damaged journal into a new one.

Row by row: a page that can't be read takes the rows on it, and no others. What is left is made to agree with itself,
so that nothing is learned from half an episode; an episode that lost examples is parked with its reason. Snapshots
that lost their row get one again if their file is sound. Runs before anything serves, in the place of a start-up that
would have nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sharp_engine import Learner, SharpError
from sharp_server.storage.data_folder import SUFFIX, DataFolder, origin_and_version, sha256_of
from sharp_server.storage.sqlite import schema
from sharp_server.storage.sqlite.learners import NewSnapshot, add_snapshot

log = logging.getLogger(__name__)

_TABLES = (
    "learners", "classes", "forgotten", "streams", "parts", "examples", "episodes", "versions", "snapshots", "damages",
)  # fmt: skip
_KEYS = {"classes": "learner, ordinal", "forgotten": "learner, label", "versions": "learner, version"}
"""Tables without a rowid are read by their primary key."""
_TRIES = 200
"""Rows in a row that can't be read before the rest of a table is read from its end."""


def salvage(damaged: Path, connection: sqlite3.Connection, folder: DataFolder) -> int:
    """Fill a new journal from a damaged one; returns how many learners could be saved."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    tables = _read(damaged)
    if not tables["learners"]:
        _mend_first_page(damaged, folder.journal)
        tables = _read(damaged)
    connection.execute("BEGIN IMMEDIATE")
    for table, rows in tables.items():
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
    _agree(connection)
    for learner, uid, version in connection.execute("SELECT id, uid, version FROM learners").fetchall():
        _adopt_files(connection, learner, uid, version, folder)
    connection.execute("COMMIT")
    return int(connection.execute("SELECT count(*) FROM learners").fetchone()[0])


def _read(damaged: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The readable rows of every table."""
    source = sqlite3.connect(f"file:{damaged}?mode=ro", uri=True, isolation_level=None)
    source.text_factory = lambda text: text.decode("utf-8", "replace")
    with contextlib.closing(source):
        return {table: list(_rows(source, table)) for table in _TABLES}


def _mend_first_page(damaged: Path, fresh: Path) -> None:
    """The first page says where the tables are, in every journal of one format the same: take it from a new one."""
    with fresh.open("rb") as file:
        page = file.read(schema.PAGE_BYTES)
    with damaged.open("r+b") as file:
        damaged.with_name(damaged.name + "-first-page").write_bytes(file.read(schema.PAGE_BYTES))
        file.seek(0)
        file.write(page)


def _rows(source: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Every row of a table that can be read."""
    key = _KEYS.get(table)
    if key is not None:
        seen: set[tuple[Any, ...]] = set()
        for order in (key, ", ".join(f"{column} DESC" for column in key.split(", "))):
            for row in _readable(source, f"SELECT * FROM {table} ORDER BY {order}"):
                if row not in seen:
                    seen.add(row)
                    yield row
        return
    last, tries = 0, 0
    while tries < _TRIES:
        before = last
        for number, *values in _readable(source, f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > {last} "
                                                 "ORDER BY rowid"):  # fmt: skip
            last, tries = number, 0
            yield tuple(values)
        if last == before:
            last, tries = last + 1, tries + 1
    for number, *values in _readable(source, f"SELECT rowid, * FROM {table} NOT INDEXED ORDER BY rowid DESC"):
        if number <= last:
            return
        yield tuple(values)


def _readable(source: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from source.execute(query)
    except sqlite3.Error as error:
        log.warning("a part of the damaged journal can't be read: %s", error)


def _agree(connection: sqlite3.Connection) -> None:
    """Let the tables tell one story again."""
    known = "(SELECT id FROM learners)"
    for table in ("classes", "forgotten", "streams", "parts", "episodes", "versions", "snapshots"):
        connection.execute(f"DELETE FROM {table} WHERE learner NOT IN {known}")
    connection.execute("DELETE FROM examples WHERE part NOT IN (SELECT id FROM parts)")
    connection.execute("DELETE FROM episodes WHERE stream NOT IN (SELECT id FROM streams)")
    missing = "kept > 0 AND id NOT IN (SELECT part FROM examples)"
    # An episode is whole if the parts that are left hold as many examples as were counted when it was closed.
    connection.execute(
        "UPDATE episodes SET state = 'parked', reason = 'ENGINE_ERROR', settled = ?, "
        "detail = 'examples of it were lost with a damaged journal' WHERE state = 'waiting' AND examples != "
        f"(SELECT coalesce(sum(kept), 0) FROM parts WHERE episode = episodes.id AND NOT ({missing}))",
        (time.time(),),
    )
    connection.execute(f"DELETE FROM parts WHERE episode IS NULL AND {missing}")
    connection.execute(
        "UPDATE streams SET open_examples = (SELECT coalesce(sum(kept), 0) FROM parts "
        "WHERE stream = streams.id AND episode IS NULL)"
    )
    for column, table, value in (
        ("next_episode", "episodes", "max(number) + 1"),
        ("next_position", "episodes", "max(position) + 1"),
        ("next_class", "classes", "max(ordinal) + 1"),
        ("version", "versions", "max(version)"),
    ):
        connection.execute(
            f"UPDATE learners SET {column} = max({column}, coalesce((SELECT {value} FROM {table} "
            "WHERE learner = learners.id), 0))"
        )


def _adopt_files(connection: sqlite3.Connection, learner: int, uid: str, newest: int, folder: DataFolder) -> None:
    """Give sound snapshot files of published versions that lost their row one again.

    Their ids come before all others: every class that was ever forgotten is taken out of them before they serve.
    """
    rows = connection.execute("SELECT name FROM snapshots WHERE learner = ?", (learner,))
    known = {row[0] for row in rows}
    for path in sorted(folder.of_learner(uid).glob(f"*{SUFFIX}")) if folder.of_learner(uid).is_dir() else ():
        name = path.name.removesuffix(SUFFIX)
        told = origin_and_version(name)
        if name in known or told is None or told[1] > newest:
            continue
        try:
            held = Learner.load(path, device="cpu")  # checks the file's own digest
        except (SharpError, OSError) as error:
            log.warning("a snapshot without a row is not sound: %s", error)
            continue
        classes = json.dumps([held.labels.label(memory.class_id) for memory in held.ltm.classes])
        origin, version = told
        new = NewSnapshot(learner, name, version, held.episodes, classes, origin, path.stat().st_size, sha256_of(path))
        row = add_snapshot(connection, new)
        connection.execute("UPDATE snapshots SET id = ? WHERE id = ?", (-row.id, row.id))
