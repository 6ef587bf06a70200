"""The journal's tables, and how a connection to them is opened.

Raw examples are in `examples` and `lesson_examples` and nowhere else: deleting a row there deletes them from the disk,
because freed pages are overwritten (secure_delete) and the write-ahead log is truncated after every such deletion.
`batch_slices` is the account: which examples of which batch became part of which episode. It stays when the examples
go; so do `lessons`, the newest ones, to know a request that comes again.

Whatever arrives for a learner gets a place: batches, lessons and the boundaries of episodes, in one order.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sharp_server.storage.interface import UnsupportedFormatError

FORMAT = 4
PAGE_BYTES = 16384


LARGEST = 2**63 - 1
"""Number that a column can hold; the wire has larger ones."""

_TABLES = """
CREATE TABLE IF NOT EXISTS learners (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL UNIQUE,
    config BLOB NOT NULL,           -- sharp.v1.LearnerConfig as it was given
    settings TEXT NOT NULL,         -- the engine's config, JSON
    input_shape TEXT,               -- JSON, absent until fixed
    label_kind TEXT,                -- 'text', 'integer', absent until fixed
    created REAL NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    head INTEGER,                   -- the snapshot that holds this version
    next_episode INTEGER NOT NULL DEFAULT 1,
    next_position INTEGER NOT NULL DEFAULT 1,
    next_class INTEGER NOT NULL DEFAULT 0,
    next_place INTEGER NOT NULL DEFAULT 1,
    examples INTEGER NOT NULL DEFAULT 0,        -- that ever arrived
    damaged INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS classes (   -- met and not forgotten
    learner INTEGER NOT NULL, ordinal INTEGER NOT NULL, label TEXT NOT NULL,
    PRIMARY KEY (learner, ordinal), UNIQUE (learner, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten ( -- snapshots with an id up to `snapshots_before` may still hold it
    learner INTEGER NOT NULL, label TEXT NOT NULL, snapshots_before INTEGER NOT NULL,
    PRIMARY KEY (learner, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS renamed (   -- snapshots with an id up to `snapshots_before` hold it under its old name
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL,
    snapshots_before INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS renamed_classes ON renamed (learner, id);
CREATE TABLE IF NOT EXISTS streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, name TEXT NOT NULL, boundaries TEXT NOT NULL,
    durable INTEGER NOT NULL DEFAULT 0, open_examples INTEGER NOT NULL DEFAULT 0, UNIQUE (learner, name));
CREATE TABLE IF NOT EXISTS batch_slices (     -- examples first … first+count-1 of a batch; `kept` of them not forgotten
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, stream INTEGER NOT NULL, episode INTEGER,
    place INTEGER NOT NULL,         -- of the batch in the order of arrivals
    sequence INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, kept INTEGER NOT NULL,
    indices BLOB,                   -- uint32 of those kept, where some were forgotten
    dtype TEXT NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS slices_of_episode ON batch_slices (episode, sequence, first) WHERE episode IS NOT NULL;
CREATE INDEX IF NOT EXISTS open_slices ON batch_slices (stream, sequence, first) WHERE episode IS NULL;
CREATE TABLE IF NOT EXISTS examples (batch_slice INTEGER PRIMARY KEY, y BLOB NOT NULL, x BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS slices_by_place ON batch_slices (learner, place, first);
CREATE TABLE IF NOT EXISTS lessons (
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, place INTEGER NOT NULL, request_id TEXT NOT NULL,
    content BLOB NOT NULL,          -- SHA-256 of what was sent
    counted INTEGER NOT NULL,       -- batches up to this place are known before it, where they are beyond the version
    examples INTEGER NOT NULL, kept INTEGER NOT NULL,   -- `kept` of them not forgotten
    dtype TEXT NOT NULL, bytes INTEGER NOT NULL, new_classes TEXT NOT NULL,
    UNIQUE (learner, place), UNIQUE (learner, request_id));
CREATE TABLE IF NOT EXISTS lesson_examples (lesson INTEGER PRIMARY KEY, y BLOB NOT NULL, x BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS episodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, number INTEGER NOT NULL, stream INTEGER NOT NULL,
    state TEXT NOT NULL,            -- waiting, parked, learned, discarded
    place INTEGER NOT NULL,         -- of its end in the order of arrivals: lessons before it are learned before it
    position INTEGER NOT NULL,      -- in the learner's queue
    closed_by TEXT NOT NULL, first_sequence INTEGER NOT NULL, last_sequence INTEGER NOT NULL,
    last_batch_examples INTEGER NOT NULL,       -- examples of the last batch that belong to it, 0: all
    examples INTEGER NOT NULL, bytes INTEGER NOT NULL, classes TEXT NOT NULL, closed REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    starts INTEGER NOT NULL DEFAULT 0,  -- begun without a phase finished since
    reason TEXT, detail TEXT, finished_at REAL,
    version INTEGER, episodes_learned INTEGER, statistics BLOB,
    phase_sha256 BLOB,              -- of the object that holds the learner after the newest finished phase
    UNIQUE (learner, number));
CREATE INDEX IF NOT EXISTS episodes_of_stream ON episodes (stream, number);
CREATE INDEX IF NOT EXISTS unlearned ON episodes (learner, position) WHERE state IN ('waiting', 'parked');
CREATE TABLE IF NOT EXISTS versions (
    learner INTEGER NOT NULL, version INTEGER NOT NULL, created REAL NOT NULL, cause TEXT NOT NULL, episode INTEGER,
    snapshot TEXT NOT NULL, sha256 BLOB NOT NULL,
    lessons INTEGER NOT NULL DEFAULT 0,         -- lessons up to this place became part of it; 0: none did
    holds INTEGER,                              -- of an undone version: the one that came back
    PRIMARY KEY (learner, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS qualities (  -- how good the newest versions are, JSON
    learner INTEGER NOT NULL, version INTEGER NOT NULL, created REAL NOT NULL, quality TEXT NOT NULL,
    PRIMARY KEY (learner, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, learner INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    episodes INTEGER NOT NULL, classes TEXT NOT NULL, origin TEXT NOT NULL, created REAL NOT NULL,
    size INTEGER NOT NULL, sha256 BLOB NOT NULL, note TEXT NOT NULL, damaged INTEGER NOT NULL DEFAULT 0,
    learned_before INTEGER NOT NULL DEFAULT 0,  -- episodes the learner had learned in all when this came
    UNIQUE (learner, name));
CREATE TABLE IF NOT EXISTS corruption_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, learner TEXT NOT NULL, snapshot TEXT NOT NULL,
    lost INTEGER NOT NULL, serving INTEGER NOT NULL, detail TEXT NOT NULL);
"""


_SETTINGS_OF_READERS = ("busy_timeout = 20000", "temp_store = MEMORY")
_SETTINGS = (
    f"page_size = {PAGE_BYTES}",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 1000",
    *_SETTINGS_OF_READERS,
)


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection with the journal's settings; transactions are begun and ended by hand."""
    if readonly:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    else:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS_OF_READERS if readonly else _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()  # one that lives on would delete the log of whatever has the file's name by then
        raise
    return connection


def create(connection: sqlite3.Connection) -> None:
    """Make the tables where they are missing."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in (0, FORMAT):
        raise UnsupportedFormatError(
            f"the journal has format {found}, this server reads {FORMAT}: start the version that wrote it, or begin "
            "with an empty data folder and send the examples again (Upgrade in docs/operations.md)"
        )
    if not found:  # else nothing is written: a server must start on a full disk
        connection.executescript("BEGIN IMMEDIATE;" + _TABLES + f"PRAGMA user_version = {FORMAT}; COMMIT;")


def is_sound(connection: sqlite3.Connection) -> bool:
    """Whether the file is a database whose structure holds together."""
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False


_ELSEWHERE = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS,
)  # fmt: skip


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a journal that does not open is itself the reason, rather than the disk, rights or another process."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or (code & 0xFF) not in _ELSEWHERE
