"""What the journal does with lessons, and in which order arrivals become known. In a transaction.

A lesson is kept once, whole, and its raw examples go in the transaction that records the version they are part of; what
is left of it then knows the request if it comes again. The order is written down, so that what answers know beyond a
version can be made again to the last bit: batches by their place, each lesson after those that were counted when it
came. A version that changes what is known puts the lessons first again (`lessons_first`).
"""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.postgres import partitions
from sharp_server.storage.postgres.streams import label_texts, next_place, settle
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import BatchSlice, Beyond, BeyondKey, LessonRow, NewLesson
from sharp_server.storage.slices import renumbered

REMEMBERED = 10_000
"""Lessons per learner whose request ids are known after their examples are gone, as `learning.proto` promises."""

_PLACES_AT_ONCE = 64


async def keep(transaction: Transaction, new: NewLesson) -> LessonRow:
    """Write a lesson, or find the one with the same request id."""
    learner = new.learner
    await transaction.own(learner)
    known = await transaction.row(
        "SELECT place, content, examples, new_classes FROM lessons WHERE learner = %s AND request_id = %s",
        *(learner, new.request_id),
    )
    if known is not None:
        place, content, examples, classes = known
        if content != new.content:
            message = "a lesson with this id and other content was taught before"
            raise RpcError("REQUEST_ID_USED", message, request_id=new.request_id, fields=("request_id",))
        return LessonRow(place, content, examples, tuple(json.loads(classes)), True)
    met = {row[0] for row in await transaction.rows("SELECT ordinal FROM classes WHERE learner = %s", learner)}
    y = renumbered(new.y, await settle(transaction, learner, new.fixes, new.new_classes))
    place = await next_place(transaction, learner, new.count)
    ordinals = np.frombuffer(y, np.int32)
    classes = await label_texts(transaction, learner, ordinals[~np.isin(ordinals, list(met))])
    lesson = await transaction.value(
        "INSERT INTO lessons (learner, place, request_id, content, counted, examples, kept, dtype, bytes, new_classes) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        *(learner, place, new.request_id, new.content, new.counted, new.count, new.count, new.dtype),
        *(new.bytes, json.dumps(classes)),
    )
    partition = await transaction.value("SELECT partition FROM learners WHERE id = %s", learner)
    if partition is None:
        partition = await partitions.create(transaction)
        await _set_partition(transaction, learner, partition)
    await partitions.insert(transaction, partition, lesson, y, new.x)
    await transaction.notify(learner, "lesson", place)
    return LessonRow(place, new.content, new.count, tuple(classes), False)


async def _set_partition(transaction: Transaction, learner: int, partition: int | None) -> None:
    await transaction.run("UPDATE learners SET partition = %s WHERE id = %s", partition, learner)


async def _keep_pending(transaction: Transaction, learner: int) -> None:
    """Write the partition anew with the examples of pending lessons alone."""
    old = await transaction.value("SELECT partition FROM learners WHERE id = %s", learner)
    if old is None:
        return
    rows = await transaction.rows("SELECT id FROM lessons WHERE learner = %s AND pending", learner)
    new = await partitions.copy(transaction, old, [lesson for (lesson,) in rows]) if rows else None
    await partitions.drop(transaction, old)
    await _set_partition(transaction, learner, new)


async def drop(transaction: Transaction, learner: int, place: int) -> None:
    """Take back a lesson that could not be taught: its request id is free again."""
    await transaction.own(learner)
    if await transaction.run("DELETE FROM lessons WHERE learner = %s AND place = %s", learner, place):
        await _keep_pending(transaction, learner)
        await transaction.notify(learner, "lesson", place)


async def take_in(transaction: Transaction, learner: int, until: int) -> None:
    """Lessons up to a place are part of a version: delete their examples, and forget about the oldest."""
    taken = await transaction.run(
        "UPDATE lessons SET pending = FALSE WHERE learner = %s AND pending AND place <= %s", learner, until
    )
    if taken:
        await _keep_pending(transaction, learner)
    oldest = await transaction.row(
        "SELECT place FROM lessons WHERE learner = %s ORDER BY place DESC LIMIT 1 OFFSET %s", learner, REMEMBERED
    )
    if oldest is not None:
        await transaction.run(
            "DELETE FROM lessons WHERE learner = %s AND place <= %s AND NOT pending", learner, min(until, oldest[0])
        )


async def lessons_first(transaction: Transaction, learner: int) -> None:
    """From now on lessons become known before any batch: what is known is made anew, lessons at once."""
    await transaction.run("UPDATE lessons SET counted = 0 WHERE learner = %s AND pending AND counted <> 0", learner)


async def beyond(transaction: Transaction, learner: int, after: BeyondKey, nbytes: int) -> list[Beyond]:
    """What is not part of a version yet, in the order in which it becomes known, up to about so many bytes."""
    keys = [(place, 0) for place in await _batches(transaction, learner, after.counted)]
    keys += await transaction.rows(
        "SELECT counted, place FROM lessons WHERE learner = %s AND pending AND (counted, place) > (%s, %s) "
        "ORDER BY counted, place LIMIT %s",
        *(learner, after.counted, after.lesson, _PLACES_AT_ONCE),
    )
    found: list[Beyond] = []
    size = 0
    for counted, lesson in sorted(keys)[:_PLACES_AT_ONCE]:  # of each kind the first so many: none is passed over
        if lesson:
            (item,) = await _lessons(transaction, learner, "place = %s", lesson)
        else:
            item = await _batch(transaction, learner, counted)
        found.append(item)
        size += item.bytes
        if size >= nbytes:
            break
    return found


async def last(transaction: Transaction, learner: int) -> BeyondKey | None:
    """Where the last lesson stands that is not part of a version yet."""
    row = await transaction.row(
        "SELECT counted, place FROM lessons WHERE learner = %s AND pending ORDER BY counted DESC, place DESC LIMIT 1",
        learner,
    )
    return BeyondKey(*row) if row is not None else None


_UNLEARNED = (
    "FROM batch_slices p JOIN streams s ON s.id = p.stream LEFT JOIN episodes e ON e.id = p.episode "
    "WHERE p.learner = %s AND p.kept > 0 AND (p.episode IS NULL OR e.state = 'waiting')"
)


async def _batches(transaction: Transaction, learner: int, after: int) -> list[int]:
    """Places of the next batches that are to be learned."""
    if not after:  # what was learned long ago is passed over at once
        after = await transaction.value(
            "SELECT coalesce(min(place), 1) - 1 FROM (SELECT p.place FROM batch_slices p JOIN episodes e "
            "ON e.id = p.episode WHERE e.learner = %s AND e.partition IS NOT NULL UNION ALL SELECT p.place "
            "FROM batch_slices p JOIN streams s ON s.id = p.stream WHERE p.episode IS NULL AND s.learner = %s "
            "AND s.partition IS NOT NULL) AS unlearned",
            *(learner, learner),
        )
    rows = await transaction.rows(
        f"SELECT DISTINCT p.place {_UNLEARNED} AND p.place > %s ORDER BY p.place LIMIT %s",
        *(learner, after, _PLACES_AT_ONCE),
    )
    return [place for (place,) in rows]


async def _batch(transaction: Transaction, learner: int, place: int) -> Beyond:
    pieces = await transaction.rows(
        f"SELECT p.id, p.dtype, p.kept, CASE WHEN p.episode IS NULL THEN s.partition ELSE e.partition END {_UNLEARNED} "
        "AND p.place = %s ORDER BY p.first",
        *(learner, place),
    )
    wanted: defaultdict[int, list[int]] = defaultdict(list)
    for piece, _, _, partition in pieces:
        wanted[partition].append(piece)
    raw: dict[int, tuple[bytes, bytes]] = {}
    for partition, items in wanted.items():
        raw |= await partitions.examples(transaction, partition, items)
    found = tuple(BatchSlice(dtype, kept, *raw[piece]) for piece, dtype, kept, _ in pieces)
    return Beyond(BeyondKey(place), place, False, found)


async def _lessons(transaction: Transaction, learner: int, condition: str, value: int) -> list[Beyond]:
    partition = await transaction.value("SELECT partition FROM learners WHERE id = %s", learner)
    if partition is None:
        return []
    rows = await transaction.rows(lessons_query(partition, condition), learner, value)
    return [lesson_of(row) for row in rows]


def lessons_query(partition: int, condition: str) -> str:
    """Pending lessons by a condition of ours, in order; values: the learner, and the condition's."""
    return (
        f"SELECT l.counted, l.place, l.dtype, l.kept, e.y, e.x FROM lessons l JOIN {partitions.table(partition)} e "
        f"ON e.item = l.id WHERE l.learner = %s AND l.pending AND l.{condition} ORDER BY l.place"
    )


def lesson_of(row: tuple[int, int, str, int, bytes, bytes]) -> Beyond:
    """One row of that."""
    counted, place, dtype, kept, y, x = row
    return Beyond(BeyondKey(counted, place), place, True, (BatchSlice(dtype, kept, y, x),))


async def forget(transaction: Transaction, learner: int, ordinal: int) -> int:
    """Remove a class from the lessons that are no part of a version; gives how many examples went."""
    old = await transaction.value("SELECT partition FROM learners WHERE id = %s", learner)
    if old is None:
        return 0
    removed = 0
    new = await partitions.create(transaction)
    for lesson in await partitions.ordinals(transaction, old):
        y, x = (await partitions.examples(transaction, old, [lesson]))[lesson]
        left = raw_examples.without_class(y, x, ordinal)
        if left is not None:
            y, x = left.y, left.x
            removed += left.gone
            await transaction.run(
                "UPDATE lessons SET kept = %s, bytes = %s, pending = %s WHERE id = %s",
                *(left.kept, left.bytes, left.kept > 0, lesson),
            )
        if left is None or left.kept:
            await partitions.insert(transaction, new, lesson, y, x)
    await partitions.drop(transaction, old)
    await _set_partition(transaction, learner, new)
    return removed
