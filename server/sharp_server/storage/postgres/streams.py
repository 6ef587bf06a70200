"""What the journal does with arriving batches and boundaries. Every function runs in a transaction.

A batch is kept whole or not at all, and only as the very next one of its stream. A cut that falls inside a batch splits
its slice in two, so that an episode is always a list of whole slices, and a partition is one episode's or one stream's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.postgres import partitions, schema
from sharp_server.storage.postgres.episode_rows import episodes_where
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import Arrival, BatchSlice, EpisodeRow, Ordinals, StreamRow
from sharp_server.storage.slices import renumbered

_KEEP = """
    WITH stream AS (
        UPDATE streams SET durable = %s, open_examples = open_examples + %s
        WHERE id = %s AND learner = %s AND durable = %s RETURNING partition),
    learner AS (
        UPDATE learners SET next_place = next_place + 1, examples = examples + %s
        WHERE id = %s AND EXISTS (SELECT FROM stream) RETURNING next_place - 1 AS place)
    INSERT INTO batch_slices (learner, stream, place, sequence, first, count, kept, dtype, bytes)
    SELECT %s, %s, place, %s, 0, %s, %s, %s, %s FROM learner
    RETURNING id, (SELECT partition FROM stream)"""
"""The next batch of a stream, with all numbers that it counts in, in one statement: every one is a way to the database
and back."""


async def open_stream(transaction: Transaction, learner: int, name: str, boundaries: str) -> StreamRow:
    """Take up a stream, or make it."""
    await transaction.own(learner)
    await transaction.run(
        "INSERT INTO streams (learner, name, boundaries) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        *(learner, name, boundaries),
    )
    row = await transaction.row(
        "SELECT id, boundaries, durable, open_examples FROM streams WHERE learner = %s AND name = %s", learner, name
    )
    assert row is not None
    stream = StreamRow(*row)
    if stream.boundaries != boundaries:
        raise RpcError(
            "BOUNDARIES_MISMATCH",
            f"the stream was opened with {stream.boundaries} boundaries before",
            expected=stream.boundaries,
            found=boundaries,
        )
    return stream


async def append(transaction: Transaction, arrival: Arrival) -> list[EpisodeRow]:
    """Write a batch, what it settles, and the cuts that it completes; returns the episodes that are closed by it."""
    learner, stream, count = arrival.learner, arrival.stream, arrival.count
    await transaction.own(learner)
    y = renumbered(arrival.y, await settle(transaction, learner, arrival.fixes, arrival.new_classes))
    kept = await transaction.row(
        _KEEP,
        *(arrival.sequence, count, stream, learner, arrival.sequence - 1, count, learner),
        *(learner, stream, arrival.sequence, count, count, arrival.dtype, arrival.bytes),
    )
    if kept is None:
        raise await _out_of_order(transaction, learner, stream, arrival.sequence)
    piece, partition = kept
    if partition is None:
        partition = await partitions.create(transaction)
        await transaction.run("UPDATE streams SET partition = %s WHERE id = %s", partition, stream)
    await partitions.insert(transaction, partition, piece, y, arrival.x)
    closed = [await close(transaction, learner, stream, length, by) for length, by in arrival.cuts]
    return [episode for episode in closed if episode is not None]


async def settle(
    transaction: Transaction,
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
        await transaction.run("UPDATE learners SET input_shape = %s, label_kind = %s WHERE id = %s", *fixes, learner)
    if new_classes:
        await transaction.many(
            "INSERT INTO classes (learner, ordinal, label) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [(learner, ordinal, label) for ordinal, label in new_classes],
        )
        await transaction.run(
            "UPDATE learners SET next_class = greatest(next_class, %s) WHERE id = %s",
            *(max(ordinal for ordinal, _ in new_classes) + 1, learner),
        )
        for ordinal, label in new_classes:
            select = "SELECT ordinal FROM classes WHERE learner = %s AND label = %s AND ordinal != %s"
            others.update((ordinal, other) for (other,) in await transaction.rows(select, learner, label, ordinal))
    return others


async def next_place(transaction: Transaction, learner: int, examples: int = 0) -> int:
    """The next place in the order of arrivals, for something that brings so many examples."""
    return int(
        await transaction.value(
            "UPDATE learners SET next_place = next_place + 1, examples = examples + %s WHERE id = %s "
            "RETURNING next_place - 1",
            *(examples, learner),
        )
    )


async def mark(transaction: Transaction, learner: int, stream: int, sequence: int) -> list[EpisodeRow]:
    """Write a producer's mark: all open examples become an episode. None if there are none."""
    await transaction.own(learner)
    await _advance(transaction, learner, stream, sequence)
    closed = await close(transaction, learner, stream, None, "mark", sequence)
    return [closed] if closed is not None else []


async def unlearned_totals(transaction: Transaction, learner: int) -> tuple[int, int]:
    """Bytes of batches not learned yet, and open examples."""
    nbytes = await transaction.value(
        "SELECT (SELECT coalesce(sum(bytes), 0) FROM episodes WHERE learner = %s AND partition IS NOT NULL)::bigint + "
        "(SELECT coalesce(sum(p.bytes), 0) FROM batch_slices p JOIN streams s ON s.id = p.stream "
        "WHERE s.learner = %s AND s.partition IS NOT NULL AND p.episode IS NULL)::bigint",
        *(learner, learner),
    )
    opened = await transaction.value(
        "SELECT coalesce(sum(open_examples), 0)::bigint FROM streams WHERE learner = %s", learner
    )
    return nbytes, opened


async def empty_marks(transaction: Transaction, stream: int, after_sequence: int, limit: int) -> list[int]:
    """Durable marks after a number that closed nothing, the newest `limit` of them, in rising order.

    Every durable number is a batch or a mark. One that lies within no episode, and is no batch of the open one, is a
    mark that closed nothing.
    """
    after = min(after_sequence, schema.LARGEST)
    durable = await transaction.value("SELECT durable FROM streams WHERE id = %s", stream)
    used = await transaction.rows(
        "SELECT first_sequence, last_sequence FROM episodes WHERE stream = %s AND last_sequence > %s UNION ALL "
        "SELECT sequence, sequence FROM batch_slices WHERE stream = %s AND episode IS NULL AND sequence > %s "
        "ORDER BY 2 DESC",
        *(stream, after, stream, after),
    )
    return raw_examples.unused_numbers(durable, ((first, last) for first, last in used), after, limit)


async def _advance(transaction: Transaction, learner: int, stream: int, sequence: int) -> None:
    """Count a mark's number as durable, if it is the next one."""
    moved = await transaction.run(
        "UPDATE streams SET durable = %s WHERE id = %s AND learner = %s AND durable = %s",
        *(sequence, stream, learner, sequence - 1),
    )
    if not moved:
        raise await _out_of_order(transaction, learner, stream, sequence)


async def _out_of_order(transaction: Transaction, learner: int, stream: int, sequence: int) -> RpcError:
    """Why a number is not the next one of its stream."""
    durable = await transaction.row("SELECT durable FROM streams WHERE id = %s AND learner = %s", stream, learner)
    if durable is None:
        return RpcError("LEARNER_NOT_FOUND", "the learner was deleted")
    return RpcError("SEQUENCE_GAP", "a number was left out", expected=durable[0] + 1, found=sequence)


async def close(
    transaction: Transaction, learner: int, stream: int, length: int | None, by: str, sequence: int = 0
) -> EpisodeRow | None:
    """Make an episode of the first `length` open examples of a stream (all, where no length is given)."""
    partition = await transaction.value("SELECT partition FROM streams WHERE id = %s", stream)
    if partition is None or length == 0:
        return None
    found = await transaction.rows(
        "SELECT id, sequence, kept, bytes FROM batch_slices WHERE stream = %s AND episode IS NULL AND kept > 0 "
        "ORDER BY sequence, first",
        stream,
    )
    ordinals = await partitions.ordinals(transaction, partition)
    taken, left, size, last_batch_examples = [], length, 0, 0
    labels: list[Ordinals] = []
    for piece, number, kept, nbytes in found:
        if left == 0:
            break
        of_piece = raw_examples.ordinals_of(ordinals[piece])
        if left is not None and kept > left:
            nbytes = await _split(transaction, partition, piece, left)
            of_piece, kept, last_batch_examples = of_piece[:left], left, left
        taken.append((piece, number, kept))
        labels.append(of_piece)
        size += nbytes
        left = left - kept if left is not None else None
    if not taken:
        return None
    examples = sum(kept for _, _, kept in taken)
    number, position = await _next_episode(transaction, learner)
    episode = await transaction.value(
        "INSERT INTO episodes (learner, number, stream, state, place, position, closed_by, first_sequence, "
        "last_sequence, last_batch_examples, examples, bytes, classes, closed, partition) "
        "VALUES (%s, %s, %s, 'waiting', %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        *(learner, number, stream, await next_place(transaction, learner), position, by, taken[0][1]),
        *(sequence or taken[-1][1], last_batch_examples, examples, size),
        *(json.dumps(await label_texts(transaction, learner, np.concatenate(labels))), time.time(), partition),
    )
    await transaction.run(
        "UPDATE batch_slices SET episode = %s WHERE id = ANY(%s)", episode, [piece for piece, _, _ in taken]
    )
    await transaction.run(
        "UPDATE streams SET open_examples = open_examples - %s, partition = %s WHERE id = %s",
        *(examples, await _rest(transaction, stream, partition), stream),
    )
    return (await episodes_where(transaction, "e.id = %s", episode))[0]


async def _next_episode(transaction: Transaction, learner: int) -> tuple[int, int]:
    row = await transaction.row(
        "UPDATE learners SET next_episode = next_episode + 1, next_position = next_position + 1 WHERE id = %s "
        "RETURNING next_episode - 1, next_position - 1",
        learner,
    )
    assert row is not None
    return row[0], row[1]


async def _rest(transaction: Transaction, stream: int, partition: int) -> int | None:
    """Move what stays open to a partition of its own; gives that, if anything stays."""
    rows = await transaction.rows(
        "SELECT id FROM batch_slices WHERE stream = %s AND episode IS NULL AND kept > 0", stream
    )
    return await partitions.move(transaction, partition, [piece for (piece,) in rows]) if rows else None


async def _split(transaction: Transaction, partition: int, piece: int, head: int) -> int:
    """Split a piece after its first `head` examples; returns the bytes of the head."""
    row = await transaction.row("SELECT first, count, kept, indices FROM batch_slices WHERE id = %s", piece)
    assert row is not None
    y, x = (await partitions.examples(transaction, partition, [piece]))[piece]
    first, count, kept, indices = row
    front, back = raw_examples.split(raw_examples.Half(first, count, kept, indices, y, x), head)
    tail = await transaction.value(
        "INSERT INTO batch_slices (learner, stream, place, sequence, first, count, kept, indices, dtype, bytes) "
        "SELECT learner, stream, place, sequence, %s, %s, %s, %b, dtype, %s FROM batch_slices WHERE id = %s "
        "RETURNING id",
        *(back.first, back.count, back.kept, back.indices, back.bytes, piece),
    )
    await transaction.run(
        "UPDATE batch_slices SET count = %s, kept = %s, indices = %b, bytes = %s WHERE id = %s",
        *(front.count, front.kept, front.indices, front.bytes, piece),
    )
    await transaction.run(f"DELETE FROM {partitions.table(partition)} WHERE item = %s", piece)
    await partitions.insert(transaction, partition, piece, front.y, front.x)
    await partitions.insert(transaction, partition, tail, back.y, back.x)
    return front.bytes


async def label_texts(transaction: Transaction, learner: int, ordinals: Ordinals) -> list[str]:
    """Labels as JSON of the classes among these ordinals, in the order in which the learner met them."""
    wanted = np.unique(ordinals).tolist()
    rows = await transaction.rows(
        "SELECT label FROM classes WHERE learner = %s AND ordinal = ANY(%s) ORDER BY ordinal", learner, wanted
    )
    return [label for (label,) in rows]


async def open_slices(transaction: Transaction, stream: int) -> list[BatchSlice]:
    """A stream's open examples, in order: what a segmenter is rebuilt from."""
    row = await transaction.row("SELECT partition FROM streams WHERE id = %s", stream)
    if row is None or row[0] is None:
        return []
    rows = await transaction.rows(
        f"SELECT p.dtype, p.kept, e.y, e.x FROM batch_slices p JOIN {partitions.table(row[0])} e ON e.item = p.id "
        "WHERE p.stream = %s AND p.episode IS NULL ORDER BY p.sequence, p.first",
        stream,
    )
    return [BatchSlice(*values) for values in rows]
