"""What the journal knows of learners, their versions and snapshots, and of damage. In the writer's transaction."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from sharp_server.errors import RpcError


@dataclass(frozen=True)
class LearnerRow:
    """A learner as it is on disk."""

    id: int
    name: str
    uid: str
    config: bytes
    settings: str
    input_shape: str | None
    label_kind: str | None
    created: float
    version: int
    head: int | None
    damaged: int
    next_class: int


@dataclass(frozen=True)
class SnapshotRow:
    """A snapshot as it is on disk."""

    id: int
    learner: int
    name: str
    version: int
    episodes: int
    classes: str
    origin: str
    created: float
    size: int
    sha256: bytes
    note: str
    damaged: int
    learned_before: int


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot whose file is in its place."""

    learner: int
    name: str
    version: int
    episodes: int
    classes: str
    """JSON."""
    origin: str
    size: int
    sha256: bytes
    note: str = ""


@dataclass(frozen=True)
class NewVersion:
    """A version that is to serve, with the automatic snapshot that holds it."""

    snapshot: NewSnapshot
    cause: str
    """learned, forgotten, restored, damaged."""
    keep: int
    """Automatic snapshots to keep."""
    episode: int | None = None

    @property
    def version(self) -> int:
        """Its number."""
        return self.snapshot.version

    @property
    def episodes(self) -> int:
        """Episodes it has learned."""
        return self.snapshot.episodes


_LEARNER = (
    "SELECT id, name, uid, config, settings, input_shape, label_kind, created, version, head, damaged, next_class "
    "FROM learners "
)
_SNAPSHOT = (
    "SELECT id, learner, name, version, episodes, classes, origin, created, size, sha256, note, damaged, "
    "learned_before FROM snapshots "
)


def learners(connection: sqlite3.Connection) -> list[LearnerRow]:
    """All learners by name."""
    return [LearnerRow(*row) for row in connection.execute(_LEARNER + "ORDER BY name")]


def create(
    connection: sqlite3.Connection,
    name: str,
    uid: str,
    config: bytes,
    settings: str,
    input_shape: str | None,
    label_kind: str | None,
    limit: int,
) -> LearnerRow:
    """Make a learner."""
    if connection.execute("SELECT 1 FROM learners WHERE name = ?", (name,)).fetchone():
        raise RpcError("LEARNER_EXISTS", f"there is a learner {name!r} already")
    if connection.execute("SELECT count(*) FROM learners").fetchone()[0] >= limit:
        raise RpcError("TOO_MANY_LEARNERS", f"the server owns {limit} learners already", limit=limit)
    connection.execute(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (name, uid, config, settings, input_shape, label_kind, time.time()),
    )
    return LearnerRow(*connection.execute(_LEARNER + "WHERE name = ?", (name,)).fetchone())


def delete(connection: sqlite3.Connection, learner: int) -> None:
    """Delete a learner with all it has."""
    connection.execute("DELETE FROM examples WHERE part IN (SELECT id FROM parts WHERE learner = ?)", (learner,))
    for table in ("parts", "episodes", "streams", "classes", "forgotten", "versions", "snapshots"):
        connection.execute(f"DELETE FROM {table} WHERE learner = ?", (learner,))
    connection.execute("DELETE FROM learners WHERE id = ?", (learner,))


def classes(connection: sqlite3.Connection, learner: int) -> list[tuple[int, str]]:
    """(ordinal, label as JSON) of the classes that were met and not forgotten."""
    return connection.execute(
        "SELECT ordinal, label FROM classes WHERE learner = ? ORDER BY ordinal", (learner,)
    ).fetchall()


def forgotten(connection: sqlite3.Connection, learner: int) -> dict[str, int]:
    """Label as JSON → the newest snapshot that may still hold it."""
    return dict(
        connection.execute("SELECT label, snapshots_before FROM forgotten WHERE learner = ?", (learner,)).fetchall()
    )


def remember(connection: sqlite3.Connection, learner: int, labels: list[str]) -> None:
    """Classes (labels as JSON) that come back on request count as never forgotten."""
    connection.executemany("DELETE FROM forgotten WHERE learner = ? AND label = ?", [(learner, t) for t in labels])


# ---- versions and snapshots -----------------------------------------------------------------------------------------


def publish(connection: sqlite3.Connection, new: NewVersion) -> list[str]:
    """Record a version with its automatic snapshot; returns the names of older ones whose files are to be deleted."""
    snapshot = new.snapshot
    connection.execute(  # before the snapshot, which counts the episodes up to and with its own
        "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)",
        (snapshot.learner, new.version, time.time(), new.cause, new.episode, snapshot.name, snapshot.sha256),
    )
    head = add_snapshot(connection, snapshot).id
    connection.execute("UPDATE learners SET version = ?, head = ? WHERE id = ?", (new.version, head, snapshot.learner))
    old = connection.execute(
        "SELECT id, name FROM snapshots WHERE learner = ? AND origin = 'automatic' ORDER BY id DESC LIMIT -1 OFFSET ?",
        (snapshot.learner, new.keep),
    ).fetchall()
    connection.executemany("DELETE FROM snapshots WHERE id = ?", [(row[0],) for row in old])
    return [row[1] for row in old]


def add_snapshot(connection: sqlite3.Connection, new: NewSnapshot, limit: int | None = None) -> SnapshotRow:
    """Record a snapshot; `limit` bounds those that are kept on request."""
    if limit is not None:
        kept = connection.execute(
            "SELECT count(*) FROM snapshots WHERE learner = ? AND origin != 'automatic'", (new.learner,)
        ).fetchone()[0]
        if kept >= limit:
            raise RpcError("TOO_MANY_SNAPSHOTS", f"the learner keeps {limit} snapshots already", limit=limit)
    learned = connection.execute(
        "SELECT count(*) FROM versions WHERE learner = ? AND cause = 'learned'", (new.learner,)
    ).fetchone()[0]
    connection.execute(
        "INSERT INTO snapshots (learner, name, version, episodes, classes, origin, created, size, sha256, note, "
        "learned_before) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(new.learner, new.name, new.version, new.episodes, new.classes, new.origin, time.time(), new.size),
            *(new.sha256, new.note, learned),
        ),
    )
    return snapshot(connection, new.learner, new.name)


def snapshots(connection: sqlite3.Connection, learner: int) -> list[SnapshotRow]:
    """A learner's snapshots, newest first."""
    return [
        SnapshotRow(*row) for row in connection.execute(_SNAPSHOT + "WHERE learner = ? ORDER BY id DESC", (learner,))
    ]


def snapshot(connection: sqlite3.Connection, learner: int, name: str) -> SnapshotRow:
    """One snapshot, or the refusal."""
    row = connection.execute(_SNAPSHOT + "WHERE learner = ? AND name = ?", (learner, name)).fetchone()
    if row is None:
        raise RpcError("SNAPSHOT_NOT_FOUND", "the learner has no such snapshot", snapshot=name, fields=("snapshot_id",))
    return SnapshotRow(*row)


def delete_snapshots(connection: sqlite3.Connection, learner: int, names: list[str]) -> None:
    """Delete rows of snapshots; their files are the caller's."""
    connection.executemany("DELETE FROM snapshots WHERE learner = ? AND name = ?", [(learner, name) for name in names])


def settle(connection: sqlite3.Connection, learner: int, input_shape: str, label_kind: str | None) -> None:
    """Fix a learner's input shape and kind of labels."""
    connection.execute(
        "UPDATE learners SET input_shape = ?, label_kind = coalesce(?, label_kind) WHERE id = ?",
        (input_shape, label_kind, learner),
    )


def meet(connection: sqlite3.Connection, learner: int, pairs: list[tuple[int, str]], next_class: int) -> None:
    """Write down classes that a snapshot brought: (ordinal, label as JSON)."""
    connection.executemany("INSERT OR IGNORE INTO classes VALUES (?, ?, ?)", [(learner, *pair) for pair in pairs])
    connection.execute("UPDATE learners SET next_class = max(next_class, ?) WHERE id = ?", (next_class, learner))


# ---- damage ---------------------------------------------------------------------------------------------------------


def mark_damaged(connection: sqlite3.Connection, row: SnapshotRow) -> None:
    """Note that a snapshot's file is not what was written."""
    if not row.damaged:
        connection.execute("UPDATE snapshots SET damaged = 1 WHERE id = ?", (row.id,))
        connection.execute("UPDATE learners SET damaged = damaged + 1 WHERE id = ?", (row.learner,))


def add_damage(
    connection: sqlite3.Connection, learner: str, snapshot_name: str, lost: int, serving: int, detail: str
) -> None:
    """Write down what was found damaged, for the operator."""
    connection.execute(
        "INSERT INTO damages (time, learner, snapshot, lost, serving, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), learner, snapshot_name, lost, serving, detail),
    )


def damages(connection: sqlite3.Connection) -> list[tuple[float, str, str, int, int, str]]:
    """The newest hundred."""
    return connection.execute(
        "SELECT time, learner, snapshot, lost, serving, detail FROM damages ORDER BY id DESC LIMIT 100"
    ).fetchall()
