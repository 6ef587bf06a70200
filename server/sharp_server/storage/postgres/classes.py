"""What the journal does when a class gets another name, or becomes part of another. In a transaction.

Examples carry ordinals: a new name is one row, a merged class a new ordinal in every example not learned yet, those of
lessons too. What a class was called is remembered, because older snapshots hold it under that name: forgetting it
must reach them too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sharp_server.errors import RpcError
from sharp_server.storage import raw_examples
from sharp_server.storage.postgres import partitions
from sharp_server.storage.postgres.lessons import lessons_first
from sharp_server.storage.postgres.streams import label_texts
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import Relabelling


@dataclass(frozen=True)
class Held:
    """Where unlearned examples of a learner are."""

    partition: int
    stream: int
    episode: int | None
    """None: they are open."""


async def held(transaction: Transaction, learner: int) -> list[Held]:
    """The partitions of a learner's batches that are not learned yet."""
    rows = await transaction.rows(
        "SELECT partition, id, NULL::bigint FROM streams WHERE learner = %s AND partition IS NOT NULL UNION ALL "
        "SELECT partition, stream, id FROM episodes WHERE learner = %s AND partition IS NOT NULL ORDER BY 1",
        *(learner, learner),
    )
    return [Held(*row) for row in rows]


async def relabel(transaction: Transaction, change: Relabelling) -> int:
    """Do it; returns the examples not learned yet that are of the class."""
    learner = change.learner
    await transaction.own(learner)
    old, new = await ordinal_of(transaction, learner, change.old), await ordinal_of(transaction, learner, change.new)
    if old is None or change.merge and new is None:
        raise RpcError("CLASS_NOT_FOUND", "the learner does not know the class")
    if not change.merge and new is not None:
        raise RpcError("CLASS_EXISTS", "there is a class of that name already")
    changed = 0
    touched: list[tuple[int, Iterable[bytes]]] = []
    for place in await held(transaction, learner):
        ordinals = await partitions.ordinals(transaction, place.partition)
        here = await _relabel_in(transaction, place.partition, ordinals, old, new)
        changed += here
        if here and place.episode is not None:
            touched.append((place.episode, ordinals.values()))
    lessons = await transaction.value("SELECT partition FROM learners WHERE id = %s", learner)
    if lessons is not None:
        ordinals = await partitions.ordinals(transaction, lessons)
        changed += await _relabel_in(transaction, lessons, ordinals, old, new)
    await lessons_first(transaction, learner)
    if change.merge:
        await transaction.run("DELETE FROM classes WHERE learner = %s AND ordinal = %s", learner, old)
    else:
        await transaction.run(
            "UPDATE classes SET label = %s WHERE learner = %s AND ordinal = %s", change.new, learner, old
        )
    for episode, parts in touched:
        await describe(transaction, learner, episode, parts)
    await transaction.run(
        "INSERT INTO renamed (learner, old, new, snapshots_before) VALUES (%s, %s, %s, %s)",
        *(learner, change.old, change.new, await newest_snapshot(transaction, learner)),
    )
    await transaction.notify(learner, "lesson", 0)
    return changed


async def ordinal_of(transaction: Transaction, learner: int, label: str) -> int | None:
    """A class's ordinal, if the learner knows it."""
    row = await transaction.row("SELECT ordinal FROM classes WHERE learner = %s AND label = %s", learner, label)
    return int(row[0]) if row is not None else None


async def newest_snapshot(transaction: Transaction, learner: int) -> int:
    """The newest snapshot's id; 0: there is none."""
    return int(await transaction.value("SELECT coalesce(max(id), 0) FROM snapshots WHERE learner = %s", learner))


async def _relabel_in(
    transaction: Transaction, partition: int, ordinals: dict[int, bytes], old: int, new: int | None
) -> int:
    """Examples of a class in a partition, with another ordinal from now on where one is given."""
    changed = 0
    for item, y in ordinals.items():
        count, values = raw_examples.relabelled(y, old, new)
        changed += count
        if count and new is not None:
            ordinals[item] = values
            await partitions.set_ordinals(transaction, partition, item, values)
    return changed


async def describe(transaction: Transaction, learner: int, episode: int, parts: Iterable[bytes]) -> None:
    """Write down anew which classes an episode holds, given the ordinals of its slices."""
    texts = await label_texts(transaction, learner, raw_examples.joined(parts))
    await transaction.run("UPDATE episodes SET classes = %s WHERE id = %s", json.dumps(texts), episode)


async def renamed(transaction: Transaction, learner: int) -> list[tuple[str, str, int]]:
    """(Old label, new label, newest snapshot with the old one) of all classes renamed or merged, in order."""
    query = "SELECT old, new, snapshots_before FROM renamed WHERE learner = %s ORDER BY id"
    return [(old, new, newest) for old, new, newest in await transaction.rows(query, learner)]


async def older_names(transaction: Transaction, learner: int, label: str) -> dict[str, int]:
    """What a class was called before, each with the newest snapshot that may hold it under that name."""
    return raw_examples.older_names(await renamed(transaction, learner), label)


async def forget_names(transaction: Transaction, learner: int, label: str) -> set[str]:
    """Note that a class is forgotten, under its older names too: snapshots from before hold it as those. Gives all."""
    older = await older_names(transaction, learner, label)
    newest = await newest_snapshot(transaction, learner)
    await transaction.run(
        "INSERT INTO forgotten VALUES (%s, %s, %s) "
        "ON CONFLICT (learner, label) DO UPDATE SET snapshots_before = excluded.snapshots_before",
        *(learner, label, newest),
    )
    await transaction.many(
        "INSERT INTO forgotten AS f VALUES (%s, %s, %s) ON CONFLICT (learner, label) "
        "DO UPDATE SET snapshots_before = greatest(f.snapshots_before, excluded.snapshots_before)",
        [(learner, old, before) for old, before in older.items()],
    )
    return {label, *older}
