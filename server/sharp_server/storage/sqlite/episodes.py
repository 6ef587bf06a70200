"""What the journal does with closed episodes: learned, tried again, parked, discarded. In the writer's transaction.

The transaction that records a version is the one that deletes the raw examples it was learned from: there is no moment
at which an episode is both learned and still to be learned, or neither.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence

import numpy as np

from sharp_server.errors import RpcError
from sharp_server.storage.records import EpisodeRow, Forgotten, NewVersion, Published, Relabelling
from sharp_server.storage.sqlite import classes, learners, lessons, schema
from sharp_server.storage.sqlite.streams import episodes_where, label_texts


def publish(
    connection: sqlite3.Connection,
    version: NewVersion,
    forgotten: str | None,
    back: Sequence[str],
    relabelling: Relabelling | None = None,
) -> Published:
    """Record a version; in the same transaction a class is forgotten, renamed or merged, others come back, if asked."""
    learner = version.snapshot.learner
    removed = forget(connection, learner, forgotten) if forgotten is not None else None
    relabelled = classes.relabel(connection, relabelling) if relabelling is not None else 0
    learners.remember(connection, learner, back)
    if version.lessons:
        lessons.take_in(connection, learner, version.lessons)
    else:
        lessons.lessons_first(connection, learner)
    return Published(learners.publish(connection, version), removed, relabelled)


def learned(connection: sqlite3.Connection, episode: int, version: NewVersion, statistics: bytes) -> Published:
    """Record the version that holds an episode and delete its examples."""
    now = time.time()
    changed = connection.execute(
        "UPDATE episodes SET state = 'learned', version = ?, episodes_learned = ?, statistics = ?, finished_at = ?, "
        "reason = NULL, detail = NULL WHERE id = ? AND state = 'waiting'",
        (version.version, version.episodes, statistics, now, episode),
    ).rowcount
    if changed != 1:
        raise RpcError("LEARNER_BUSY", "the episode was changed while it was learned")
    _delete_examples(connection, episode)
    lessons.take_in(connection, version.snapshot.learner, version.lessons)
    lessons.lessons_first(connection, version.snapshot.learner)
    return Published(learners.publish(connection, version))


def begin(connection: sqlite3.Connection, episode: int) -> int:
    """A try begins; returns how many began since a phase was last finished."""
    connection.execute("UPDATE episodes SET starts = starts + 1 WHERE id = ?", (episode,))
    return int(connection.execute("SELECT starts FROM episodes WHERE id = ?", (episode,)).fetchone()[0])


def advance(connection: sqlite3.Connection, episode: int) -> None:
    """A phase was finished, so whatever kills the process lies ahead of it, or was chance."""
    connection.execute("UPDATE episodes SET starts = 0, attempts = 0 WHERE id = ?", (episode,))


def excuse(connection: sqlite3.Connection, episode: int) -> None:
    """A try came to nothing for no fault of the episode."""
    connection.execute("UPDATE episodes SET starts = 0 WHERE id = ?", (episode,))


def fail(connection: sqlite3.Connection, episode: int) -> int:
    """A try failed; returns how many have."""
    connection.execute("UPDATE episodes SET attempts = attempts + 1, starts = 0 WHERE id = ?", (episode,))
    return int(connection.execute("SELECT attempts FROM episodes WHERE id = ?", (episode,)).fetchone()[0])


def park(connection: sqlite3.Connection, episode: int, reason: str, detail: str) -> EpisodeRow:
    """Set an episode aside with its reason."""
    connection.execute(
        "UPDATE episodes SET state = 'parked', reason = ?, detail = ?, finished_at = ? "
        "WHERE id = ? AND state = 'waiting'",
        (reason, detail, time.time(), episode),
    )
    row = episodes_where(connection, "e.id = ?", episode)[0]
    lessons.lessons_first(connection, row.learner)
    return row


def parked(connection: sqlite3.Connection, learner: int, number: int) -> EpisodeRow:
    """A parked episode by its number, or the refusal that fits."""
    found = (
        [] if number > schema.LARGEST else episodes_where(connection, "e.learner = ? AND e.number = ?", learner, number)
    )
    if not found or found[0].state in ("learned", "discarded"):
        raise RpcError("EPISODE_NOT_FOUND", f"no unlearned episode {number}", episode=number, fields=("episode",))
    if found[0].state != "parked":
        raise RpcError("EPISODE_NOT_PARKED", f"episode {number} is waiting or being learned", episode=number)
    return found[0]


def retry(connection: sqlite3.Connection, learner: int, number: int) -> EpisodeRow:
    """Put a parked episode at the end of the queue."""
    episode = parked(connection, learner, number)
    connection.execute(
        "UPDATE episodes SET state = 'waiting', attempts = 0, starts = 0, reason = NULL, detail = NULL, "
        "finished_at = NULL, position = (SELECT next_position FROM learners WHERE id = ?) WHERE id = ?",
        (learner, episode.id),
    )
    connection.execute("UPDATE learners SET next_position = next_position + 1 WHERE id = ?", (learner,))
    lessons.lessons_first(connection, learner)
    return episodes_where(connection, "e.id = ?", episode.id)[0]


def discard(connection: sqlite3.Connection, learner: int, number: int) -> EpisodeRow:
    """Give up a parked episode and delete its examples; returns it as it was."""
    episode = parked(connection, learner, number)
    _discard(connection, episode.id, "operator")
    return episode


def _discard(connection: sqlite3.Connection, episode: int, reason: str) -> None:
    _delete_examples(connection, episode)
    connection.execute(
        "UPDATE episodes SET state = 'discarded', reason = ?, finished_at = ? WHERE id = ?",
        (reason, time.time(), episode),
    )


def _delete_examples(connection: sqlite3.Connection, episode: int) -> None:
    connection.execute(
        "DELETE FROM examples WHERE batch_slice IN (SELECT id FROM batch_slices WHERE episode = ?)", (episode,)
    )


def forget(connection: sqlite3.Connection, learner: int, label: str) -> Forgotten:
    """Remove a class (label as JSON) from everything not learned yet, and remember that it was forgotten."""
    row = connection.execute("SELECT ordinal FROM classes WHERE learner = ? AND label = ?", (learner, label)).fetchone()
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM snapshots WHERE learner = ?", (learner,)).fetchone()
    connection.execute(
        "INSERT INTO forgotten VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET snapshots_before = excluded.snapshots_before",
        (learner, label, newest[0]),
    )
    lessons.lessons_first(connection, learner)
    classes.forget_older_names(connection, learner, label)
    if row is None:
        return Forgotten(0, 0, 0, ())
    removed, nbytes, opened, touched = _remove(connection, learner, row[0])
    removed += lessons.forget(connection, learner, row[0])
    connection.execute("DELETE FROM classes WHERE learner = ? AND label = ?", (learner, label))
    discarded = []
    for episode in touched:
        sums = connection.execute(
            "SELECT coalesce(sum(kept), 0), coalesce(sum(bytes), 0) FROM batch_slices WHERE episode = ?", (episode,)
        ).fetchone()
        slices = connection.execute(
            "SELECT e.y FROM examples e JOIN batch_slices p ON p.id = e.batch_slice WHERE p.episode = ?", (episode,)
        )
        labels = [np.frombuffer(y, np.int32) for (y,) in slices]
        texts = label_texts(connection, learner, np.concatenate(labels) if labels else np.zeros(0, np.int32))
        connection.execute(
            "UPDATE episodes SET examples = ?, bytes = ?, classes = ? WHERE id = ?",
            (*sums, json.dumps(texts), episode),
        )
        if not sums[0]:
            discarded += episodes_where(connection, "e.id = ?", episode)
            _discard(connection, episode, "forgotten")
    return Forgotten(removed, nbytes, opened, tuple(discarded))


def _remove(connection: sqlite3.Connection, learner: int, ordinal: int) -> tuple[int, int, int, list[int]]:
    """Rewrite every piece that holds the class; returns examples, bytes, open examples removed and episodes touched."""
    holding = "SELECT p.id FROM batch_slices p JOIN examples e ON e.batch_slice = p.id WHERE p.learner = ?"
    ids = [row[0] for row in connection.execute(holding, (learner,))]
    removed = freed = opened = 0
    touched: set[int] = set()
    for piece in ids:
        stream, episode, first, kept, indices, nbytes, y, x = connection.execute(
            "SELECT p.stream, p.episode, p.first, p.kept, p.indices, p.bytes, e.y, e.x FROM batch_slices p "
            "JOIN examples e ON e.batch_slice = p.id WHERE p.id = ?",
            (piece,),
        ).fetchone()
        labels = np.frombuffer(y, np.int32)
        keep = labels != ordinal
        gone = int(kept - keep.sum())
        if not gone:
            continue
        places = (
            np.arange(first, first + kept, dtype=np.uint32) if indices is None else np.frombuffer(indices, np.uint32)
        )
        rows = np.frombuffer(x, np.uint8).reshape(kept, -1)[keep].tobytes()
        y_left = labels[keep].tobytes()
        left = len(rows) + len(y_left)
        connection.execute("DELETE FROM examples WHERE batch_slice = ?", (piece,))
        if kept > gone:
            connection.execute("INSERT INTO examples (batch_slice, y, x) VALUES (?, ?, ?)", (piece, y_left, rows))
        connection.execute(
            "UPDATE batch_slices SET kept = ?, indices = ?, bytes = ? WHERE id = ?",
            (kept - gone, places[keep].tobytes(), left, piece),
        )
        removed, freed = removed + gone, freed + nbytes - left
        if episode is None:
            opened += gone
            connection.execute("UPDATE streams SET open_examples = open_examples - ? WHERE id = ?", (gone, stream))
        else:
            touched.add(episode)
    return removed, freed, opened, sorted(touched)
