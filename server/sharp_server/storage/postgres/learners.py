"""What the journal knows of learners and who owns them. In a transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from sharp_server.errors import RpcError, StaleOwnerError
from sharp_server.storage.postgres import classes as relabelling
from sharp_server.storage.postgres import partitions
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import FoundLearner, LearnerRow, NewLearner, OwnerRow

_LEARNER = (
    "SELECT id, name, uid, config, settings, input_shape, label_kind, created, version, head, damaged, next_class, "
    "examples FROM learners "
)
_TABLES = (
    *("batch_slices", "lessons", "episodes", "streams", "classes", "forgotten", "renamed", "versions", "qualities"),
    "snapshots",
)


async def learners(transaction: Transaction) -> list[LearnerRow]:
    """All learners by name."""
    return [LearnerRow(*row) for row in await transaction.rows(_LEARNER + 'ORDER BY name COLLATE "C"')]


async def never_used(transaction: Transaction) -> bool:
    """Whether the journal has never had a learner: it is new, however full the folder beside it is."""
    query = "SELECT pg_sequence_last_value(pg_get_serial_sequence('learners', 'id')::regclass) IS NULL"
    return bool(await transaction.value(query))


async def create(transaction: Transaction, new: NewLearner, limit: int, address: str) -> LearnerRow:
    """Make a learner; it belongs to whoever makes it."""
    name = new.name
    if await transaction.row("SELECT 1 FROM learners WHERE name = %s", name) is not None:
        raise RpcError("LEARNER_EXISTS", f"there is a learner {name!r} already")
    if await transaction.value("SELECT count(*) FROM learners") >= limit:
        raise RpcError("TOO_MANY_LEARNERS", f"the server owns {limit} learners already", limit=limit)
    made = await transaction.row(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING RETURNING id",
        *(name, new.uid, new.config, new.settings, new.input_shape, new.label_kind, time.time()),
    )
    if made is None:  # another server made it meanwhile
        raise RpcError("LEARNER_EXISTS", f"there is a learner {name!r} already")
    if transaction.fence.owner:
        await claim(transaction, made[0], transaction.fence.owner, address)
    row = await transaction.row(_LEARNER + "WHERE id = %s", made[0])
    assert row is not None
    return LearnerRow(*row)


async def delete(transaction: Transaction, learner: int) -> None:
    """Delete a learner with all it has."""
    if not await transaction.own_if_there(learner):
        return
    for place in await relabelling.held(transaction, learner):
        await partitions.drop(transaction, place.partition)
    await partitions.drop(transaction, await transaction.value("SELECT partition FROM learners WHERE id = %s", learner))
    for table in _TABLES:
        await transaction.run(f"DELETE FROM {table} WHERE learner = %s", learner)
    await transaction.run("DELETE FROM learners WHERE id = %s", learner)
    await transaction.notify(learner, "deleted", 0)
    transaction.give_up(learner)


async def classes(transaction: Transaction, learner: int) -> list[tuple[int, str]]:
    """(ordinal, label as JSON) of the classes that were met and not forgotten."""
    rows = await transaction.rows("SELECT ordinal, label FROM classes WHERE learner = %s ORDER BY ordinal", learner)
    return [(ordinal, label) for ordinal, label in rows]


async def forgotten(transaction: Transaction, learner: int) -> dict[str, int]:
    """Label as JSON → the newest snapshot that may still hold it."""
    rows = await transaction.rows("SELECT label, snapshots_before FROM forgotten WHERE learner = %s", learner)
    return {label: newest for label, newest in rows}


async def remember(transaction: Transaction, learner: int, labels: Sequence[str]) -> None:
    """Classes (labels as JSON) that come back on request count as never forgotten."""
    if labels:
        await transaction.run("DELETE FROM forgotten WHERE learner = %s AND label = ANY(%s)", learner, list(labels))


async def fix_inputs(transaction: Transaction, learner: int, input_shape: str, label_kind: str | None) -> None:
    """Fix a learner's input shape and kind of labels."""
    await transaction.own(learner)
    await transaction.run(
        "UPDATE learners SET input_shape = %s, label_kind = coalesce(%s, label_kind) WHERE id = %s",
        *(input_shape, label_kind, learner),
    )


async def add_classes(transaction: Transaction, learner: int, pairs: list[tuple[int, str]], next_class: int) -> None:
    """Write down classes that a snapshot brought: (ordinal, label as JSON)."""
    await transaction.own(learner)
    await transaction.many(
        "INSERT INTO classes VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", [(learner, *pair) for pair in pairs]
    )
    await transaction.run(
        "UPDATE learners SET next_class = greatest(next_class, %s) WHERE id = %s", next_class, learner
    )


# ---- owners ---------------------------------------------------------------------------------------------------------


async def claim(transaction: Transaction, learner: int, owner: str, address: str) -> int:
    """Give a learner an owner; waits for whatever the one before has begun. Gives the new epoch."""
    row = await transaction.row(
        "UPDATE learners SET owner = %s, address = %s, epoch = epoch + 1 WHERE id = %s RETURNING epoch, uid",
        *(owner, address, learner),
    )
    if row is None:
        raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted")
    epoch, uid = row
    transaction.give_up(learner)
    if owner == transaction.fence.owner:
        transaction.fence.claimed[learner] = epoch
    await transaction.notify_uid(uid, "owner", epoch)
    return int(epoch)


async def release(transaction: Transaction, learner: int, epoch: int) -> None:
    """Give a learner up, if it is still owned under this epoch."""
    row = await transaction.row(
        "UPDATE learners SET owner = '', address = '' WHERE id = %s AND owner = %s AND epoch = %s RETURNING uid",
        *(learner, transaction.fence.owner, epoch),
    )
    if row is None:
        address = await transaction.row("SELECT address FROM learners WHERE id = %s", learner)
        raise StaleOwnerError(learner, address[0] if address is not None else "")
    transaction.give_up(learner)
    await transaction.notify_uid(row[0], "owner", epoch)


async def owners(transaction: Transaction) -> list[OwnerRow]:
    """All learners by name, with their owners."""
    query = 'SELECT id, name, owner, address, epoch FROM learners ORDER BY name COLLATE "C"'
    return [OwnerRow(*row) for row in await transaction.rows(query)]


# ---- a new journal --------------------------------------------------------------------------------------------------


async def enter(transaction: Transaction, found: Sequence[FoundLearner], address: str) -> None:
    """Write learners into a new journal."""
    for learner in found:
        await _enter(transaction, learner, address)


async def _enter(transaction: Transaction, learner: FoundLearner, address: str) -> None:
    manifest, head = learner.manifest, learner.head
    version = head.version if head is not None else 0
    learned = max((s.episodes for s in learner.snapshots if s.origin != "imported"), default=0)
    row = await transaction.value(
        "INSERT INTO learners (name, uid, config, settings, input_shape, label_kind, created, version, next_episode, "
        "next_class) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        *(manifest.name, learner.uid, bytes.fromhex(manifest.config), manifest.settings, learner.input_shape),
        *(learner.label_kind, manifest.created, version, max(version, learned) + 1, len(learner.labels)),
    )
    if transaction.fence.owner:
        await claim(transaction, row, transaction.fence.owner, address)
    pairs = [(row, ordinal, json.dumps(label)) for ordinal, label in enumerate(learner.labels)]
    await transaction.many("INSERT INTO classes VALUES (%s, %s, %s)", pairs)
    ids: dict[str, int] = {}
    for snapshot in learner.snapshots:
        # Counted from what the newest has learned: the versions before it are not in this journal.
        before = snapshot.episodes - learned
        ids[snapshot.name] = await transaction.value(
            "INSERT INTO snapshots (learner, name, version, episodes, classes, origin, created, size, sha256, note, "
            "learned_before) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, '', %s) RETURNING id",
            *(row, snapshot.name, snapshot.version, snapshot.episodes, json.dumps(snapshot.held)),
            *(snapshot.origin, snapshot.created, snapshot.size, snapshot.sha256, before),
        )
    if head is not None:
        await transaction.run("UPDATE learners SET head = %s WHERE id = %s", ids[head.name], row)
    await transaction.many(
        "INSERT INTO renamed (learner, old, new, snapshots_before) VALUES (%s, %s, %s, %s)",
        [(row, old, new, _newest(ids, names)) for old, new, names in manifest.renamed],
    )
    await transaction.many(
        "INSERT INTO forgotten VALUES (%s, %s, %s)",
        [(row, label, _newest(ids, names)) for label, names in manifest.forgotten.items()],
    )


def _newest(ids: dict[str, int], names: Sequence[str]) -> int:
    return max((ids[name] for name in names if name in ids), default=0)
