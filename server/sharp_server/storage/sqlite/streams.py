"""What the journal does with arriving batches and boundaries. Every function runs in the writer's transaction.

A batch is kept whole or not at all, and only as the very next one of its stream. A cut that falls inside a batch splits
its slice in two, so that an episode is always a list of whole slices.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence

import numpy as np

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.records import Arrival, BatchSlice, EpisodeRow, Ordinals, StreamRow
from sharp_server.storage.slices import renumbered
from sharp_server.storage.sqlite import schema
from sharp_server.storage.sqlite.episode_rows import episodes_where


def open_stream(connection: sqlite3.Connection, learner: int, name: str, boundaries: str) -> StreamRow:
    """Take up a stream, or make it."""
    connection.execute(
        "INSERT OR IGNORE INTO streams (learner, name, boundaries) VALUES (?, ?, ?)", (learner, name, boundaries)
    )
    row = connection.execute(
        "SELECT id, boundaries, durable, open_examples FROM streams WHERE learner = ? AND name = ?", (learner, name)
    ).fetchone()
    stream = StreamRow(*row)
    if stream.boundaries != boundaries:
        raise RpcError(
            "BOUNDARIES_MISMATCH",
            f"the stream was opened with {stream.boundaries} boundaries before",
            expected=stream.boundaries,
            found=boundaries,
        )
    return stream


def append(connection: sqlite3.Connection, arrival: Arrival) -> list[EpisodeRow]:
    """Write a batch, what it settles, and the cuts that it completes; returns the episodes that are closed by it."""
    _advance(connection, arrival.stream, arrival.sequence, arrival.count)
    y = renumbered(arrival.y, settle(connection, arrival.learner, arrival.fixes, arrival.new_classes))
    place, count = next_place(connection, arrival.learner, arrival.count), arrival.count
    piece = connection.execute(
        "INSERT INTO batch_slices (learner, stream, place, sequence, first, count, kept, dtype, bytes) "
        "VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?)",
        (arrival.learner, arrival.stream, place, arrival.sequence, count, count, arrival.dtype, arrival.bytes),
    ).lastrowid
    connection.execute("INSERT INTO examples (batch_slice, y, x) VALUES (?, ?, ?)", (piece, y, arrival.x))
    closed = [close(connection, arrival.learner, arrival.stream, length, by) for length, by in arrival.cuts]
    return [episode for episode in closed if episode is not None]


def settle(
    connection: sqlite3.Connection,
    learner: int,
    fixes: tuple[str, str] | None,
    new_classes: Sequence[tuple[int, str]],
) -> dict[int, int]:
    """Write what an arrival decides: input shape and kind of labels, and classes that come for the first time.

    Gives the numbers of those that are here under another one: forgetting them was under way when they were numbered,
    and did not come about.
    """
    others: dict[int, int] = {}
    if fixes is not None:
        connection.execute("UPDATE learners SET input_shape = ?, label_kind = ? WHERE id = ?", (*fixes, learner))
    if new_classes:
        connection.executemany(
            "INSERT OR IGNORE INTO classes (learner, ordinal, label) VALUES (?, ?, ?)",
            [(learner, ordinal, label) for ordinal, label in new_classes],
        )
        connection.execute(
            "UPDATE learners SET next_class = max(next_class, ?) WHERE id = ?",
            (max(ordinal for ordinal, _ in new_classes) + 1, learner),
        )
        for ordinal, label in new_classes:
            select = "SELECT ordinal FROM classes WHERE learner = ? AND label = ? AND ordinal != ?"
            others.update((ordinal, other) for (other,) in connection.execute(select, (learner, label, ordinal)))
    return others


def next_place(connection: sqlite3.Connection, learner: int, examples: int = 0) -> int:
    """The next place in the order of arrivals, for something that brings so many examples."""
    connection.execute(
        "UPDATE learners SET next_place = next_place + 1, examples = examples + ? WHERE id = ?", (examples, learner)
    )
    row = connection.execute("SELECT next_place - 1 FROM learners WHERE id = ?", (learner,)).fetchone()
    if row is None:
        raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted")
    return int(row[0])


def mark(connection: sqlite3.Connection, learner: int, stream: int, sequence: int) -> list[EpisodeRow]:
    """Write a producer's mark: all open examples become an episode. None if there are none."""
    _advance(connection, stream, sequence, 0)
    closed = close(connection, learner, stream, None, "mark", sequence)
    return [closed] if closed is not None else []


def unlearned_totals(connection: sqlite3.Connection, learner: int) -> tuple[int, int]:
    """Bytes of batches not learned yet, and open examples."""
    nbytes = connection.execute(
        "SELECT coalesce(sum(p.bytes), 0) FROM batch_slices p JOIN examples e ON e.batch_slice = p.id "
        "WHERE p.learner = ?",
        (learner,),
    ).fetchone()[0]
    opened = connection.execute(
        "SELECT coalesce(sum(open_examples), 0) FROM streams WHERE learner = ?", (learner,)
    ).fetchone()[0]
    return nbytes, opened


def empty_marks(connection: sqlite3.Connection, stream: int, after_sequence: int, limit: int) -> list[int]:
    """Durable marks after a number that closed nothing, the newest `limit` of them, in rising order.

    Every durable number is a batch or a mark. One that lies within no episode, and is no batch of the open one, is a
    mark that closed nothing.
    """
    after = min(after_sequence, schema.LARGEST)
    durable: int = connection.execute("SELECT durable FROM streams WHERE id = ?", (stream,)).fetchone()[0]
    used = connection.execute(
        "SELECT first_sequence, last_sequence FROM episodes WHERE stream = ?1 AND last_sequence > ?2 UNION ALL "
        "SELECT sequence, sequence FROM batch_slices WHERE stream = ?1 AND episode IS NULL AND sequence > ?2 "
        "ORDER BY 2 DESC",
        (stream, after),
    )
    return raw_examples.unused_numbers(durable, used, after, limit)


def _advance(connection: sqlite3.Connection, stream: int, sequence: int, examples: int) -> None:
    moved = connection.execute(
        "UPDATE streams SET durable = ?, open_examples = open_examples + ? WHERE id = ? AND durable = ?",
        (sequence, examples, stream, sequence - 1),
    ).rowcount
    if moved != 1:
        durable = connection.execute("SELECT durable FROM streams WHERE id = ?", (stream,)).fetchone()
        if durable is None:
            raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted")
        raise RpcError("SEQUENCE_GAP", "a number was left out", expected=durable[0] + 1, found=sequence)


def close(
    connection: sqlite3.Connection, learner: int, stream: int, length: int | None, by: str, sequence: int = 0
) -> EpisodeRow | None:
    """Make an episode of the first `length` open examples of a stream (all, where no length is given)."""
    pieces = connection.execute(
        "SELECT p.id, p.sequence, p.kept, p.bytes, e.y FROM batch_slices p JOIN examples e ON e.batch_slice = p.id "
        "WHERE p.stream = ? AND p.episode IS NULL ORDER BY p.sequence, p.first",
        (stream,),
    ).fetchall()
    taken, left, size, last_batch_examples = [], length, 0, 0
    labels: list[Ordinals] = []
    for piece, number, kept, nbytes, y in pieces:
        if left == 0:
            break
        ordinals: Ordinals = np.frombuffer(y, np.int32)
        if left is not None and kept > left:
            nbytes, ordinals, last_batch_examples = _split(connection, piece, left), ordinals[:left], left
            kept = left
        taken.append((piece, number, kept))
        labels.append(ordinals)
        size += nbytes
        left = left - kept if left is not None else None
    examples = sum(kept for _, _, kept in taken)
    if not examples:
        return None
    number, position = connection.execute(
        "SELECT next_episode, next_position FROM learners WHERE id = ?", (learner,)
    ).fetchone()
    connection.execute(
        "UPDATE learners SET next_episode = next_episode + 1, next_position = next_position + 1 WHERE id = ?",
        (learner,),
    )
    episode = connection.execute(
        "INSERT INTO episodes (learner, number, stream, state, place, position, closed_by, first_sequence, "
        "last_sequence, last_batch_examples, examples, bytes, classes, closed) "
        "VALUES (?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(
                learner,
                number,
                stream,
                next_place(connection, learner),
                position,
                by,
                taken[0][1],
                sequence or taken[-1][1],
            ),
            *(last_batch_examples, examples, size),
            *(json.dumps(label_texts(connection, learner, np.concatenate(labels))), time.time()),
        ),
    ).lastrowid
    connection.executemany(
        "UPDATE batch_slices SET episode = ? WHERE id = ?", [(episode, piece) for piece, _, _ in taken]
    )
    connection.execute("UPDATE streams SET open_examples = open_examples - ? WHERE id = ?", (examples, stream))
    return episodes_where(connection, "e.id = ?", episode)[0]


def _split(connection: sqlite3.Connection, piece: int, head: int) -> int:
    """Split a piece after its first `head` examples; returns the bytes of the head."""
    row = connection.execute(
        "SELECT p.learner, p.stream, p.place, p.sequence, p.first, p.count, p.kept, p.indices, p.dtype, e.y, e.x "
        "FROM batch_slices p JOIN examples e ON e.batch_slice = p.id WHERE p.id = ?",
        (piece,),
    ).fetchone()
    learner, stream, place, sequence, first, count, kept, indices, dtype, y, x = row
    front, back = raw_examples.split(raw_examples.Half(first, count, kept, indices, y, x), head)
    connection.execute(
        "UPDATE batch_slices SET count = ?, kept = ?, indices = ?, bytes = ? WHERE id = ?",
        (front.count, front.kept, front.indices, front.bytes, piece),
    )
    connection.execute("UPDATE examples SET y = ?, x = ? WHERE batch_slice = ?", (front.y, front.x, piece))
    tail = connection.execute(
        "INSERT INTO batch_slices (learner, stream, place, sequence, first, count, kept, indices, dtype, bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(learner, stream, place, sequence, back.first, back.count, back.kept, back.indices),
            *(dtype, back.bytes),
        ),
    ).lastrowid
    connection.execute("INSERT INTO examples (batch_slice, y, x) VALUES (?, ?, ?)", (tail, back.y, back.x))
    return front.bytes


def label_texts(connection: sqlite3.Connection, learner: int, ordinals: Ordinals) -> list[str]:
    """Labels as JSON of the classes among these ordinals, in the order in which the learner met them."""
    wanted = set(np.unique(ordinals).tolist())
    rows = connection.execute("SELECT ordinal, label FROM classes WHERE learner = ? ORDER BY ordinal", (learner,))
    return [label for ordinal, label in rows if ordinal in wanted]


def open_slices(connection: sqlite3.Connection, stream: int) -> list[BatchSlice]:
    """A stream's open examples, in order: what a segmenter is rebuilt from."""
    rows = connection.execute(
        "SELECT p.dtype, p.kept, e.y, e.x FROM batch_slices p JOIN examples e ON e.batch_slice = p.id "
        "WHERE p.stream = ? AND p.episode IS NULL AND p.kept > 0 ORDER BY p.sequence, p.first",
        (stream,),
    )
    return [BatchSlice(*row) for row in rows]


def episode_slices(connection: sqlite3.Connection, episode: int) -> list[BatchSlice]:
    """The same of a closed episode: what it is learned from."""
    rows = connection.execute(
        "SELECT p.dtype, p.kept, e.y, e.x FROM batch_slices p JOIN examples e ON e.batch_slice = p.id "
        "WHERE p.episode = ? AND p.kept > 0 ORDER BY p.sequence, p.first",
        (episode,),
    )
    return [BatchSlice(*row) for row in rows]
