"""What the journal knows of versions, how good they are, snapshots, and damage. In a transaction."""

from __future__ import annotations

import time
from collections.abc import Collection

from sharp_server.errors import RpcError
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.quality_text import without_classes
from sharp_server.storage.records import (
    CorruptionEvent,
    NewSnapshot,
    NewVersion,
    QualityRow,
    SnapshotRow,
    VersionRow,
)

_SNAPSHOT = (
    "SELECT id, learner, name, version, episodes, classes, origin, created, size, sha256, note, damaged, "
    "learned_before FROM snapshots "
)


async def publish(transaction: Transaction, new: NewVersion) -> tuple[str, ...]:
    """Record a version with its automatic snapshot; returns the names of older ones whose files are to be deleted."""
    snapshot = new.snapshot
    learner = snapshot.learner
    now = time.time()
    await transaction.run(  # before the snapshot, which counts the episodes up to and with its own
        "INSERT INTO versions (learner, version, created, cause, episode, snapshot, sha256, lessons, holds) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *(learner, new.version, now, new.cause, new.episode, snapshot.name, snapshot.sha256, new.lessons, new.holds),
    )
    if new.quality is not None:
        await transaction.run(
            "INSERT INTO qualities (learner, version, created, quality) VALUES (%s, %s, %s, %s)",
            *(learner, new.version, now, new.quality),
        )
    await transaction.run(
        "DELETE FROM qualities WHERE learner = %s AND version <= %s", learner, new.version - new.keep_qualities
    )
    head = (await _insert_snapshot(transaction, snapshot)).id
    await transaction.run("UPDATE learners SET version = %s, head = %s WHERE id = %s", new.version, head, learner)
    old = await transaction.rows(
        "SELECT id, name FROM snapshots WHERE learner = %s AND origin = 'automatic' ORDER BY id DESC OFFSET %s",
        *(learner, new.keep),
    )
    await transaction.run("DELETE FROM snapshots WHERE id = ANY(%s)", [row[0] for row in old])
    await transaction.notify(learner, "version", new.version)
    return tuple(row[1] for row in old)


async def version(transaction: Transaction, learner: int, version: int) -> VersionRow | None:
    """One version, if there was one of that number."""
    row = await transaction.row(
        "SELECT version, created, cause, holds FROM versions WHERE learner = %s AND version = %s", learner, version
    )
    return VersionRow(*row) if row is not None else None


async def episodes_learned(transaction: Transaction, learner: int) -> int:
    """Episodes that were learned in all."""
    query = "SELECT count(*) FROM versions WHERE learner = %s AND cause = 'learned'"
    return int(await transaction.value(query, learner))


async def qualities(transaction: Transaction, learner: int) -> list[QualityRow]:
    """How good the newest versions are, newest first."""
    rows = await transaction.rows(
        "SELECT version, created, quality FROM qualities WHERE learner = %s ORDER BY version DESC", learner
    )
    return [QualityRow(*row) for row in rows]


async def forget_in_qualities(transaction: Transaction, learner: int, labels: Collection[str]) -> None:
    """What is kept of versions before names these classes no more."""
    rows = await transaction.rows("SELECT version, quality FROM qualities WHERE learner = %s", learner)
    await transaction.many(
        "UPDATE qualities SET quality = %s WHERE learner = %s AND version = %s",
        [(without_classes(text, labels), learner, number) for number, text in rows],
    )


# ---- snapshots ------------------------------------------------------------------------------------------------------


async def add_snapshot(transaction: Transaction, new: NewSnapshot, limit: int) -> SnapshotRow:
    """Record a snapshot that is kept on request; `limit` bounds those."""
    await transaction.own(new.learner)
    kept = await transaction.value(
        "SELECT count(*) FROM snapshots WHERE learner = %s AND origin <> 'automatic'", new.learner
    )
    if kept >= limit:
        raise RpcError("TOO_MANY_SNAPSHOTS", f"the learner keeps {limit} snapshots already", limit=limit)
    return await _insert_snapshot(transaction, new)


async def _insert_snapshot(transaction: Transaction, new: NewSnapshot) -> SnapshotRow:
    learned = await episodes_learned(transaction, new.learner)
    await transaction.run(
        "INSERT INTO snapshots (learner, name, version, episodes, classes, origin, created, size, sha256, note, "
        "learned_before) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *(new.learner, new.name, new.version, new.episodes, new.classes, new.origin, time.time(), new.size),
        *(new.sha256, new.note.replace("\0", ""), learned),
    )
    return await snapshot(transaction, new.learner, new.name)


async def snapshots(transaction: Transaction, learner: int) -> list[SnapshotRow]:
    """A learner's snapshots, newest first."""
    rows = await transaction.rows(_SNAPSHOT + "WHERE learner = %s ORDER BY id DESC", learner)
    return [SnapshotRow(*row) for row in rows]


async def snapshot(transaction: Transaction, learner: int, name: str) -> SnapshotRow:
    """One snapshot, or the refusal."""
    row = None
    if "\0" not in name:  # no text of PostgreSQL's can have one
        row = await transaction.row(_SNAPSHOT + "WHERE learner = %s AND name = %s", learner, name)
    if row is None:
        raise RpcError("SNAPSHOT_NOT_FOUND", "the learner has no such snapshot", snapshot=name, fields=("snapshot_id",))
    return SnapshotRow(*row)


async def delete_snapshots(transaction: Transaction, learner: int, names: list[str]) -> None:
    """Delete rows of snapshots; their files are the caller's."""
    await transaction.own(learner)
    await transaction.run("DELETE FROM snapshots WHERE learner = %s AND name = ANY(%s)", learner, names)


# ---- damage ---------------------------------------------------------------------------------------------------------


async def mark_damaged(transaction: Transaction, snapshot: SnapshotRow) -> None:
    """Note that a snapshot's file is not what was written."""
    if not snapshot.damaged:
        await transaction.own(snapshot.learner)
        await transaction.run("UPDATE snapshots SET damaged = 1 WHERE id = %s", snapshot.id)
        await transaction.run("UPDATE learners SET damaged = damaged + 1 WHERE id = %s", snapshot.learner)


async def add_corruption_event(transaction: Transaction, event: CorruptionEvent) -> None:
    """Write down what was found damaged, for the operator."""
    await transaction.run(
        "INSERT INTO corruption_events (time, learner, snapshot, lost, serving, detail) "
        "VALUES (%s, %s, %s, %s, %s, %s)",
        *(time.time(), event.learner, event.snapshot, event.lost_version, event.serving_version),
        event.detail.replace("\0", ""),
    )


async def corruption_events(transaction: Transaction) -> list[CorruptionEvent]:
    """The newest hundred."""
    rows = await transaction.rows(
        "SELECT learner, snapshot, lost, serving, detail, time FROM corruption_events ORDER BY id DESC LIMIT 100"
    )
    return [CorruptionEvent(*row) for row in rows]
