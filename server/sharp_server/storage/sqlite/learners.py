"""What the journal knows of learners, their versions and snapshots, and of damage. In the writer's transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Sequence

from sharp_server.errors import RpcError
from sharp_server.storage.quality_text import without_classes
from sharp_server.storage.records import (
    CorruptionEvent,
    FoundLearner,
    LearnerRow,
    NewLearner,
    NewSnapshot,
    NewVersion,
    QualityRow,
    SnapshotRow,
    VersionRow,
)

_LEARNER = (
    "SELECT id, name, uid, config, settings, input_shape, label_kind, created, version, head, damaged, next_class, "
    "examples FROM learners "
)
_SNAPSHOT = (
    "SELECT id, learner, name, version, episodes, classes, origin, created, size, sha256, note, damaged, "
    "learned_before FROM snapshots "
)


def learners(connection: sqlite3.Connection) -> list[LearnerRow]:
    """All learners by name."""
    return [LearnerRow(*row) for row in connection.execute(_LEARNER + "ORDER BY name")]


def create(connection: sqlite3.Connection, new: NewLearner, limit: int) -> LearnerRow:
    """Make a learner."""
    name = new.name
    if connection.execute("SELECT 1 FROM learners WHERE name = ?", (name,)).fetchone():
        raise RpcError("LEARNER_EXISTS", f"there is a learner {name!r} already")
    if connection.execute("SELECT count(*) FROM learners").fetchone()[0] >= limit:
        raise RpcError("TOO_MANY_LEARNERS", f"the server owns {limit} learners already", limit=limit)
    connection.execute(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (name, new.uid, new.config, new.settings, new.input_shape, new.label_kind, time.time()),
    )
    return LearnerRow(*connection.execute(_LEARNER + "WHERE name = ?", (name,)).fetchone())


def delete(connection: sqlite3.Connection, learner: int) -> None:
    """Delete a learner with all it has."""
    connection.execute(
        "DELETE FROM examples WHERE batch_slice IN (SELECT id FROM batch_slices WHERE learner = ?)", (learner,)
    )
    connection.execute(
        "DELETE FROM lesson_examples WHERE lesson IN (SELECT id FROM lessons WHERE learner = ?)", (learner,)
    )
    for table in (
        "batch_slices",
        "lessons",
        "episodes",
        "streams",
        "classes",
        "forgotten",
        "renamed",
        "versions",
        "qualities",
        "snapshots",
    ):
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


def remember(connection: sqlite3.Connection, learner: int, labels: Sequence[str]) -> None:
    """Classes (labels as JSON) that come back on request count as never forgotten."""
    connection.executemany("DELETE FROM forgotten WHERE learner = ? AND label = ?", [(learner, t) for t in labels])


# ---- versions and snapshots -----------------------------------------------------------------------------------------


def publish(connection: sqlite3.Connection, new: NewVersion) -> tuple[str, ...]:
    """Record a version with its automatic snapshot; returns the names of older ones whose files are to be deleted."""
    snapshot = new.snapshot
    now = time.time()
    connection.execute(  # before the snapshot, which counts the episodes up to and with its own
        "INSERT INTO versions (learner, version, created, cause, episode, snapshot, sha256, lessons, holds) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(snapshot.learner, new.version, now, new.cause, new.episode, snapshot.name, snapshot.sha256),
            *(new.lessons, new.holds),
        ),
    )
    _keep_quality(connection, new, now)
    head = add_snapshot(connection, snapshot).id
    connection.execute("UPDATE learners SET version = ?, head = ? WHERE id = ?", (new.version, head, snapshot.learner))
    old = connection.execute(
        "SELECT id, name FROM snapshots WHERE learner = ? AND origin = 'automatic' ORDER BY id DESC LIMIT -1 OFFSET ?",
        (snapshot.learner, new.keep),
    ).fetchall()
    connection.executemany("DELETE FROM snapshots WHERE id = ?", [(row[0],) for row in old])
    return tuple(row[1] for row in old)


def _keep_quality(connection: sqlite3.Connection, new: NewVersion, now: float) -> None:
    learner = new.snapshot.learner
    if new.quality is not None:
        row = (learner, new.version, now, new.quality)
        connection.execute("INSERT INTO qualities (learner, version, created, quality) VALUES (?, ?, ?, ?)", row)
    connection.execute(
        "DELETE FROM qualities WHERE learner = ? AND version <= ?", (learner, new.version - new.keep_qualities)
    )


def version(connection: sqlite3.Connection, learner: int, version: int) -> VersionRow | None:
    """One version, if there was one of that number."""
    row = connection.execute(
        "SELECT version, created, cause, holds FROM versions WHERE learner = ? AND version = ?", (learner, version)
    ).fetchone()
    return VersionRow(*row) if row is not None else None


def qualities(connection: sqlite3.Connection, learner: int) -> list[QualityRow]:
    """How good the newest versions are, newest first."""
    rows = connection.execute(
        "SELECT version, created, quality FROM qualities WHERE learner = ? ORDER BY version DESC", (learner,)
    )
    return [QualityRow(*row) for row in rows]


def forget_in_qualities(connection: sqlite3.Connection, learner: int, labels: Collection[str]) -> None:
    """What is kept of versions before names these classes no more."""
    rows = connection.execute("SELECT version, quality FROM qualities WHERE learner = ?", (learner,)).fetchall()
    connection.executemany(
        "UPDATE qualities SET quality = ? WHERE learner = ? AND version = ?",
        [(without_classes(text, labels), learner, number) for number, text in rows],
    )


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


def fix_inputs(connection: sqlite3.Connection, learner: int, input_shape: str, label_kind: str | None) -> None:
    """Fix a learner's input shape and kind of labels."""
    connection.execute(
        "UPDATE learners SET input_shape = ?, label_kind = coalesce(?, label_kind) WHERE id = ?",
        (input_shape, label_kind, learner),
    )


def add_classes(connection: sqlite3.Connection, learner: int, pairs: list[tuple[int, str]], next_class: int) -> None:
    """Write down classes that a snapshot brought: (ordinal, label as JSON)."""
    connection.executemany("INSERT OR IGNORE INTO classes VALUES (?, ?, ?)", [(learner, *pair) for pair in pairs])
    connection.execute("UPDATE learners SET next_class = max(next_class, ?) WHERE id = ?", (next_class, learner))


# ---- damage ---------------------------------------------------------------------------------------------------------


def mark_damaged(connection: sqlite3.Connection, snapshot: SnapshotRow) -> None:
    """Note that a snapshot's file is not what was written."""
    if not snapshot.damaged:
        connection.execute("UPDATE snapshots SET damaged = 1 WHERE id = ?", (snapshot.id,))
        connection.execute("UPDATE learners SET damaged = damaged + 1 WHERE id = ?", (snapshot.learner,))


def add_corruption_event(connection: sqlite3.Connection, event: CorruptionEvent) -> None:
    """Write down what was found damaged, for the operator."""
    connection.execute(
        "INSERT INTO corruption_events (time, learner, snapshot, lost, serving, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), event.learner, event.snapshot, event.lost_version, event.serving_version, event.detail),
    )


def corruption_events(connection: sqlite3.Connection) -> list[CorruptionEvent]:
    """The newest hundred."""
    rows = connection.execute(
        "SELECT learner, snapshot, lost, serving, detail, time FROM corruption_events ORDER BY id DESC LIMIT 100"
    )
    return [CorruptionEvent(*row) for row in rows]


# ---- a new journal --------------------------------------------------------------------------------------------------


def never_used(connection: sqlite3.Connection) -> bool:
    """Whether the journal has never had a learner: it is new, however full the folder beside it is."""
    return connection.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'learners'").fetchone() is None


def episodes_learned(connection: sqlite3.Connection, learner: int) -> int:
    """Episodes that were learned in all."""
    counted = connection.execute("SELECT count(*) FROM versions WHERE learner = ? AND cause = 'learned'", (learner,))
    return int(counted.fetchone()[0])


def enter(connection: sqlite3.Connection, found: Sequence[FoundLearner]) -> None:
    """Write learners into a new journal. In the writer's transaction."""
    for learner in found:
        _enter(connection, learner)


def _enter(connection: sqlite3.Connection, learner: FoundLearner) -> None:
    manifest, head = learner.manifest, learner.head
    version = head.version if head is not None else 0
    learned = max((s.episodes for s in learner.snapshots if s.origin != "imported"), default=0)
    next_episode = max(version, learned) + 1
    row = connection.execute(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created, version, next_episode, "
        "next_class) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(manifest.name, learner.uid, bytes.fromhex(manifest.config), manifest.settings, learner.input_shape),
            *(learner.label_kind, manifest.created, version, next_episode, len(learner.labels)),
        ),
    ).lastrowid
    pairs = [(row, ordinal, json.dumps(label)) for ordinal, label in enumerate(learner.labels)]
    connection.executemany("INSERT INTO classes VALUES (?, ?, ?)", pairs)
    ids: dict[str, int] = {}
    for snapshot in learner.snapshots:
        # Counted from what the newest has learned: the versions before it are not in this journal.
        before = snapshot.episodes - learned
        ids[snapshot.name] = connection.execute(
            "INSERT INTO snapshots (learner, name, version, episodes, classes, origin, created, size, sha256, note, "
            "learned_before) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
            (
                *(row, snapshot.name, snapshot.version, snapshot.episodes, json.dumps(snapshot.held)),
                *(snapshot.origin, snapshot.created, snapshot.size, snapshot.sha256, before),
            ),
        ).lastrowid or 0  # fmt: skip
    if head is not None:
        connection.execute("UPDATE learners SET head = ? WHERE id = ?", (ids[head.name], row))
    for old, new, names in manifest.renamed:
        newest = max((ids[name] for name in names if name in ids), default=0)
        connection.execute(
            "INSERT INTO renamed (learner, old, new, snapshots_before) VALUES (?, ?, ?, ?)", (row, old, new, newest)
        )
    for label, names in manifest.forgotten.items():
        newest = max((ids[name] for name in names if name in ids), default=0)
        connection.execute("INSERT INTO forgotten VALUES (?, ?, ?)", (row, label, newest))
