"""What the journal does with lessons, and in which order arrivals become known. In the writer's transaction.

A lesson is kept once, whole, and its raw examples go in the transaction that records the version they are part of; what
is left of it then knows the request if it comes again. The order is written down, so that what answers know beyond a
version can be made again to the last bit: batches by their place, each lesson after those that were counted when it
came. A version that changes what is known puts the lessons first again (`lessons_first`).
"""

from __future__ import annotations

import json
import sqlite3

import numpy as np

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.records import BatchSlice, Beyond, BeyondKey, LessonRow, NewLesson
from sharp_server.storage.slices import renumbered
from sharp_server.storage.sqlite.streams import label_texts, next_place, settle

REMEMBERED = 10_000
"""Lessons per learner whose request ids are known after their examples are gone, as `learning.proto` promises."""

_PLACES_AT_ONCE = 64


def keep(connection: sqlite3.Connection, new: NewLesson) -> LessonRow:
    """Write a lesson, or find the one with the same request id."""
    known = connection.execute(
        "SELECT place, content, examples, new_classes FROM lessons WHERE learner = ? AND request_id = ?",
        (new.learner, new.request_id),
    ).fetchone()
    if known is not None:
        place, content, examples, classes = known
        if content != new.content:
            message = "a lesson with this id and other content was taught before"
            raise RpcError("REQUEST_ID_USED", message, request_id=new.request_id, fields=("request_id",))
        return LessonRow(place, content, examples, tuple(json.loads(classes)), True)
    met = {row[0] for row in connection.execute("SELECT ordinal FROM classes WHERE learner = ?", (new.learner,))}
    y = renumbered(new.y, settle(connection, new.learner, new.fixes, new.new_classes))
    place = next_place(connection, new.learner, new.count)
    ordinals = np.frombuffer(y, np.int32)
    classes = label_texts(connection, new.learner, ordinals[~np.isin(ordinals, list(met))])
    lesson = connection.execute(
        "INSERT INTO lessons (learner, place, request_id, content, counted, examples, kept, dtype, bytes, new_classes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(new.learner, place, new.request_id, new.content, new.counted, new.count, new.count, new.dtype),
            *(new.bytes, json.dumps(classes)),
        ),
    ).lastrowid
    connection.execute("INSERT INTO lesson_examples (lesson, y, x) VALUES (?, ?, ?)", (lesson, y, new.x))
    return LessonRow(place, new.content, new.count, tuple(classes), False)


def drop(connection: sqlite3.Connection, learner: int, place: int) -> None:
    """Take back a lesson that could not be taught: its request id is free again."""
    chosen = "SELECT id FROM lessons WHERE learner = ? AND place = ?"
    connection.execute(f"DELETE FROM lesson_examples WHERE lesson IN ({chosen})", (learner, place))
    connection.execute("DELETE FROM lessons WHERE learner = ? AND place = ?", (learner, place))


def take_in(connection: sqlite3.Connection, learner: int, until: int) -> None:
    """Lessons up to a place are part of a version: delete their examples, and forget about the oldest."""
    connection.execute(
        "DELETE FROM lesson_examples WHERE lesson IN (SELECT id FROM lessons WHERE learner = ? AND place <= ?)",
        (learner, until),
    )
    oldest = connection.execute(
        "SELECT place FROM lessons WHERE learner = ? ORDER BY place DESC LIMIT 1 OFFSET ?", (learner, REMEMBERED)
    ).fetchone()
    if oldest is not None:
        connection.execute(
            "DELETE FROM lessons WHERE learner = ? AND place <= ? AND id NOT IN (SELECT lesson FROM lesson_examples)",
            (learner, min(until, oldest[0])),
        )


def lessons_first(connection: sqlite3.Connection, learner: int) -> None:
    """From now on lessons become known before any batch: what is known is made anew, lessons at once."""
    connection.execute(
        "UPDATE lessons SET counted = 0 WHERE learner = ? AND id IN (SELECT lesson FROM lesson_examples)", (learner,)
    )


def beyond(connection: sqlite3.Connection, learner: int, after: BeyondKey, nbytes: int) -> list[Beyond]:
    """What is not part of a version yet, in the order in which it becomes known, up to about so many bytes."""
    keys: list[tuple[int, int]] = [(place, 0) for place in _batches(connection, learner, after.counted)]
    keys += connection.execute(
        "SELECT l.counted, l.place FROM lessons l JOIN lesson_examples e ON e.lesson = l.id WHERE l.learner = ? "
        "AND (l.counted, l.place) > (?, ?) ORDER BY l.counted, l.place LIMIT ?",
        (learner, after.counted, after.lesson, _PLACES_AT_ONCE),
    )
    found: list[Beyond] = []
    size = 0
    for counted, lesson in sorted(keys)[:_PLACES_AT_ONCE]:  # of each kind the first so many: none is passed over
        item = _lesson(connection, learner, lesson) if lesson else _batch(connection, learner, counted)
        found.append(item)
        size += item.bytes
        if size >= nbytes:
            break
    return found


def last(connection: sqlite3.Connection, learner: int) -> BeyondKey | None:
    """Where the last lesson stands that is not part of a version yet."""
    row = connection.execute(
        "SELECT l.counted, l.place FROM lessons l JOIN lesson_examples e ON e.lesson = l.id WHERE l.learner = ? "
        "ORDER BY l.counted DESC, l.place DESC LIMIT 1",
        (learner,),
    ).fetchone()
    return BeyondKey(*row) if row is not None else None


def _batches(connection: sqlite3.Connection, learner: int, after: int) -> list[int]:
    """Places of the next batches that are to be learned."""
    if not after:  # what was learned long ago is passed over at once
        after = connection.execute(
            "SELECT coalesce(min(place), 1) - 1 FROM (SELECT p.place FROM batch_slices p JOIN episodes s "
            "ON s.id = p.episode WHERE s.learner = ?1 AND s.state = 'waiting' UNION ALL SELECT p.place "
            "FROM batch_slices p WHERE p.episode IS NULL AND p.stream IN (SELECT id FROM streams WHERE learner = ?1))",
            (learner,),
        ).fetchone()[0]
    rows = connection.execute(
        f"SELECT DISTINCT p.place {_UNLEARNED} AND p.place > ? ORDER BY p.place LIMIT ?",
        (learner, after, _PLACES_AT_ONCE),
    )
    return [place for (place,) in rows]


_UNLEARNED = (
    "FROM batch_slices p JOIN examples e ON e.batch_slice = p.id LEFT JOIN episodes s ON s.id = p.episode "
    "WHERE p.learner = ? AND p.kept > 0 AND (p.episode IS NULL OR s.state = 'waiting')"
)


def _batch(connection: sqlite3.Connection, learner: int, place: int) -> Beyond:
    rows = connection.execute(
        f"SELECT p.dtype, p.kept, e.y, e.x {_UNLEARNED} AND p.place = ? ORDER BY p.first", (learner, place)
    )
    return Beyond(BeyondKey(place), place, False, tuple(BatchSlice(*row) for row in rows))


def _lesson(connection: sqlite3.Connection, learner: int, place: int) -> Beyond:
    row = connection.execute(
        "SELECT l.counted, l.dtype, l.kept, e.y, e.x FROM lessons l JOIN lesson_examples e ON e.lesson = l.id "
        "WHERE l.learner = ? AND l.place = ?",
        (learner, place),
    ).fetchone()
    return Beyond(BeyondKey(row[0], place), place, True, (BatchSlice(*row[1:]),))


def before(connection: sqlite3.Connection, learner: int, place: int) -> list[Beyond]:
    """The lessons before a place that are not part of a version yet, in order: an episode is learned after them."""
    rows = connection.execute(
        "SELECT l.place FROM lessons l JOIN lesson_examples e ON e.lesson = l.id "
        "WHERE l.learner = ? AND l.place < ? ORDER BY l.place",
        (learner, place),
    ).fetchall()
    return [_lesson(connection, learner, found) for (found,) in rows]


def forget(connection: sqlite3.Connection, learner: int, ordinal: int) -> int:
    """Remove a class from the lessons that are no part of a version; gives how many examples went."""
    rows = connection.execute(
        "SELECT l.id FROM lessons l JOIN lesson_examples e ON e.lesson = l.id WHERE l.learner = ?",
        (learner,),
    ).fetchall()
    removed = 0
    for (lesson,) in rows:
        y, x = connection.execute("SELECT y, x FROM lesson_examples WHERE lesson = ?", (lesson,)).fetchone()
        left = raw_examples.without_class(y, x, ordinal)
        if left is None:
            continue
        connection.execute("DELETE FROM lesson_examples WHERE lesson = ?", (lesson,))
        if left.kept:
            connection.execute("INSERT INTO lesson_examples (lesson, y, x) VALUES (?, ?, ?)", (lesson, left.y, left.x))
        connection.execute("UPDATE lessons SET kept = ?, bytes = ? WHERE id = ?", (left.kept, left.bytes, lesson))
        removed += left.gone
    return removed
