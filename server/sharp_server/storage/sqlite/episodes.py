"""What the journal does with closed episodes: learned, tried again, parked, discarded. In the writer's transaction.

The transaction that records a version is the one that deletes the raw examples it was learned from: there is no moment
at which an episode is both learned and still to be learned, or neither.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.records import EpisodeRow, Forgotten, NewVersion, Published, Relabelling
from sharp_server.storage.sqlite import classes, learners, lessons, schema
from sharp_server.storage.sqlite.episode_rows import episodes_where
from sharp_server.storage.sqlite.streams import label_texts


def publish(
    connection: sqlite3.Connection,
    version: NewVersion,
    forgotten: str | None,
    back: Sequence[str],
    relabelling: Relabelling | None = None,
) -> Published:
    """Record a version; in the same transaction a class is forgotten, renamed or merged, others come back, if asked."""
    learner = version.snapshot.learner
    drop_phases(connection, learner)
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
    drop_phases(connection, version.snapshot.learner)
    lessons.take_in(connection, version.snapshot.learner, version.lessons)
    lessons.lessons_first(connection, version.snapshot.learner)
    return Published(learners.publish(connection, version))


def begin(connection: sqlite3.Connection, episode: int) -> int:
    """A try begins; returns how many began since a phase was last finished."""
    connection.execute("UPDATE episodes SET starts = starts + 1 WHERE id = ?", (episode,))
    return int(connection.execute("SELECT starts FROM episodes WHERE id = ?", (episode,)).fetchone()[0])


def advance(connection: sqlite3.Connection, episode: int, phase_sha256: bytes | None = None) -> None:
    """A phase was finished, so whatever kills the process lies ahead of it, or was chance."""
    connection.execute(
        "UPDATE episodes SET starts = 0, attempts = 0, phase_sha256 = coalesce(?, phase_sha256) "
        "WHERE id = ? AND state = 'waiting'",
        (phase_sha256, episode),
    )


def drop_phases(connection: sqlite3.Connection, learner: int) -> None:
    """What a learner's episodes are learned from has changed: none goes on from a finished phase."""
    connection.execute(
        "UPDATE episodes SET phase_sha256 = NULL WHERE learner = ? AND phase_sha256 IS NOT NULL", (learner,)
    )


def excuse(connection: sqlite3.Connection, episode: int) -> None:
    """A try came to nothing for no fault of the episode."""
    connection.execute("UPDATE episodes SET starts = 0 WHERE id = ?", (episode,))


def fail(connection: sqlite3.Connection, episode: int, start_over: bool = False) -> int:
    """A try failed; returns how many have."""
    connection.execute("UPDATE episodes SET attempts = attempts + 1, starts = 0 WHERE id = ?", (episode,))
    if start_over:
        connection.execute("UPDATE episodes SET phase_sha256 = NULL WHERE id = ?", (episode,))
    return int(connection.execute("SELECT attempts FROM episodes WHERE id = ?", (episode,)).fetchone()[0])


def park(connection: sqlite3.Connection, episode: int, reason: str, detail: str) -> EpisodeRow:
    """Set an episode aside with its reason."""
    connection.execute(
        "UPDATE episodes SET state = 'parked', reason = ?, detail = ?, finished_at = ?, phase_sha256 = NULL "
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
    drop_phases(connection, learner)
    classes.forget_older_names(connection, learner, label)
    names = {label, *classes.older_names(connection, learner, label)}
    learners.forget_in_qualities(connection, learner, names)
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
        rows = connection.execute(
            "SELECT e.y FROM examples e JOIN batch_slices p ON p.id = e.batch_slice WHERE p.episode = ?", (episode,)
        )
        texts = label_texts(connection, learner, raw_examples.joined(y for (y,) in rows))
        connection.execute(
            "UPDATE episodes SET examples = ?, bytes = ?, classes = ? WHERE id = ?",
            (*sums, json.dumps(texts), episode),
        )
        if not sums[0]:
            discarded += episodes_where(connection, "e.id = ?", episode)
            _discard(connection, episode, "forgotten")
    return Forgotten(removed, nbytes, opened, tuple(discarded))


def relabel(connection: sqlite3.Connection, change: Relabelling) -> int:
    """Rename or merge a class in everything not learned yet; returns the examples that changed."""
    drop_phases(connection, change.learner)
    return classes.relabel(connection, change)


def _remove(connection: sqlite3.Connection, learner: int, ordinal: int) -> tuple[int, int, int, list[int]]:
    """Rewrite every piece that holds the class; returns examples, bytes, open examples removed and episodes touched."""
    holding = "SELECT p.id FROM batch_slices p JOIN examples e ON e.batch_slice = p.id WHERE p.learner = ?"
    ids = [row[0] for row in connection.execute(holding, (learner,))]
    removed = freed = opened = 0
    touched: set[int] = set()
    for piece in ids:
        stream, episode, first, indices, nbytes, y, x = connection.execute(
            "SELECT p.stream, p.episode, p.first, p.indices, p.bytes, e.y, e.x FROM batch_slices p "
            "JOIN examples e ON e.batch_slice = p.id WHERE p.id = ?",
            (piece,),
        ).fetchone()
        left = raw_examples.without_class(y, x, ordinal)
        if left is None:
            continue
        connection.execute("DELETE FROM examples WHERE batch_slice = ?", (piece,))
        if left.kept:
            connection.execute("INSERT INTO examples (batch_slice, y, x) VALUES (?, ?, ?)", (piece, left.y, left.x))
        connection.execute(
            "UPDATE batch_slices SET kept = ?, indices = ?, bytes = ? WHERE id = ?",
            (left.kept, left.indices(first, indices), left.bytes, piece),
        )
        removed, freed = removed + left.gone, freed + nbytes - left.bytes
        if episode is None:
            opened += left.gone
            connection.execute("UPDATE streams SET open_examples = open_examples - ? WHERE id = ?", (left.gone, stream))
        else:
            touched.add(episode)
    return removed, freed, opened, sorted(touched)
