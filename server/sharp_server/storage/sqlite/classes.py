"""What the journal does when a class gets another name, or becomes part of another. In the writer's transaction.

Examples carry ordinals: a new name is one row, a merged class a new ordinal in every example not learned yet, those of
lessons too. What a class was called is remembered, because older snapshots hold it under that name: forgetting it
must reach them too.
"""

from __future__ import annotations

import json
import sqlite3

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.records import Relabelling
from sharp_server.storage.sqlite.lessons import lessons_first
from sharp_server.storage.sqlite.streams import label_texts


def relabel(connection: sqlite3.Connection, change: Relabelling) -> int:
    """Do it; returns the examples not learned yet that are of the class."""
    learner = change.learner
    old, new = _ordinal(connection, learner, change.old), _ordinal(connection, learner, change.new)
    if old is None or change.merge and new is None:
        raise RpcError("CLASS_NOT_FOUND", "the learner does not know the class")
    if not change.merge and new is not None:
        raise RpcError("CLASS_EXISTS", "there is a class of that name already")
    changed, touched = _examples_of(connection, learner, old, new)
    changed += _lessons_of(connection, learner, old, new)
    lessons_first(connection, learner)
    if change.merge:
        connection.execute("DELETE FROM classes WHERE learner = ? AND ordinal = ?", (learner, old))
    else:
        connection.execute("UPDATE classes SET label = ? WHERE learner = ? AND ordinal = ?", (change.new, learner, old))
    for episode in touched:
        _describe(connection, learner, episode)
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM snapshots WHERE learner = ?", (learner,)).fetchone()
    connection.execute(
        "INSERT INTO renamed (learner, old, new, snapshots_before) VALUES (?, ?, ?, ?)",
        (learner, change.old, change.new, newest[0]),
    )
    return changed


def _ordinal(connection: sqlite3.Connection, learner: int, label: str) -> int | None:
    row = connection.execute("SELECT ordinal FROM classes WHERE learner = ? AND label = ?", (learner, label)).fetchone()
    return int(row[0]) if row is not None else None


def _examples_of(connection: sqlite3.Connection, learner: int, old: int, new: int | None) -> tuple[int, list[int]]:
    """Examples of a class, with another ordinal from now on where one is given; and the episodes they are in."""
    pieces = connection.execute(
        "SELECT p.id, p.episode, e.y FROM batch_slices p JOIN examples e ON e.batch_slice = p.id WHERE p.learner = ?",
        (learner,),
    ).fetchall()
    changed, touched = 0, set()
    for piece, episode, y in pieces:
        count, values = raw_examples.relabelled(y, old, new)
        if not count:
            continue
        changed += count
        if episode is not None:
            touched.add(episode)
        if new is not None:
            connection.execute("UPDATE examples SET y = ? WHERE batch_slice = ?", (values, piece))
    return changed, sorted(touched)


def _lessons_of(connection: sqlite3.Connection, learner: int, old: int, new: int | None) -> int:
    """The same of lessons that are no part of a version yet."""
    rows = connection.execute(
        "SELECT e.lesson, e.y FROM lessons l JOIN lesson_examples e ON e.lesson = l.id WHERE l.learner = ?", (learner,)
    ).fetchall()
    changed = 0
    for lesson, y in rows:
        count, values = raw_examples.relabelled(y, old, new)
        changed += count
        if count and new is not None:
            connection.execute("UPDATE lesson_examples SET y = ? WHERE lesson = ?", (values, lesson))
    return changed


def _describe(connection: sqlite3.Connection, learner: int, episode: int) -> None:
    """Write down anew which classes an episode holds."""
    rows = connection.execute(
        "SELECT e.y FROM examples e JOIN batch_slices p ON p.id = e.batch_slice WHERE p.episode = ?", (episode,)
    )
    texts = label_texts(connection, learner, raw_examples.joined(y for (y,) in rows))
    connection.execute("UPDATE episodes SET classes = ? WHERE id = ?", (json.dumps(texts), episode))


def renamed(connection: sqlite3.Connection, learner: int) -> list[tuple[str, str, int]]:
    """(Old label, new label, newest snapshot with the old one) of all classes renamed or merged, in order."""
    query = "SELECT old, new, snapshots_before FROM renamed WHERE learner = ? ORDER BY id"
    return connection.execute(query, (learner,)).fetchall()


def older_names(connection: sqlite3.Connection, learner: int, label: str) -> dict[str, int]:
    """What a class was called before, each with the newest snapshot that may hold it under that name."""
    return raw_examples.older_names(renamed(connection, learner), label)


def forget_older_names(connection: sqlite3.Connection, learner: int, label: str) -> None:
    """Snapshots from before a class was renamed or merged hold it under another name: forget that in them."""
    connection.executemany(
        "INSERT INTO forgotten VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET snapshots_before = max(snapshots_before, excluded.snapshots_before)",
        [(learner, old, newest) for old, newest in older_names(connection, learner, label).items()],
    )
