"""Tables of raw examples: one per open stream, per episode, and per learner's lessons. Their numbers are never reused.

Examples go by dropping their table, which frees its file at the commit: a deleted row would lie in its page until that
is needed again. So a table never loses some of its examples; it is written anew without them, and the old one dropped.
Only a cut moves rows away, which lie dead in the table until its episode is learned; that is why forgetting writes all
tables of a learner anew, and not just those that hold the class.

They are tables by themselves and no partitions of PostgreSQL's own kind: making or dropping one of those locks the
parent table, and so every other learner of every other server.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sharp_server.storage.postgres.transaction import Transaction


def table(partition: int) -> str:
    """The name of a partition's table."""
    return f"examples_{int(partition)}"


async def create(transaction: Transaction) -> int:
    """Make an empty partition; gives its number."""
    partition = int(await transaction.value("SELECT nextval('partitions')"))
    await transaction.run(
        f"CREATE TABLE {table(partition)} "
        "(item BIGINT PRIMARY KEY, y BYTEA NOT NULL, x BYTEA STORAGE EXTERNAL NOT NULL)"
    )
    return partition


async def drop(transaction: Transaction, partition: int | None) -> None:
    """Delete everything that is in a partition; None: there is nothing."""
    if partition is not None:
        await transaction.run(f"DROP TABLE {table(partition)}")


async def insert(transaction: Transaction, partition: int, item: int, y: bytes, x: bytes) -> None:
    """Add the examples of a slice or a lesson."""
    await transaction.run(f"INSERT INTO {table(partition)} VALUES (%s, %b, %b)", item, y, x)


async def set_ordinals(transaction: Transaction, partition: int, item: int, y: bytes) -> None:
    """Give the examples of a slice or a lesson other classes."""
    await transaction.run(f"UPDATE {table(partition)} SET y = %b WHERE item = %s", y, item)


async def examples(transaction: Transaction, partition: int, items: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
    """Item → (y, x)."""
    query = f"SELECT item, y, x FROM {table(partition)} WHERE item = ANY(%s)"
    return {item: (y, x) for item, y, x in await transaction.rows(query, list(items))}


async def ordinals(transaction: Transaction, partition: int) -> dict[int, bytes]:
    """Item → y of all that is there."""
    return {item: y for item, y in await transaction.rows(f"SELECT item, y FROM {table(partition)} ORDER BY item")}


async def move(transaction: Transaction, partition: int, items: Sequence[int]) -> int:
    """Move items to a new partition; gives that. They lie dead in the old one until it is dropped."""
    new = await copy(transaction, partition, items)
    await transaction.run(f"DELETE FROM {table(partition)} WHERE item = ANY(%s)", list(items))
    return new


async def copy(transaction: Transaction, partition: int, items: Collection[int]) -> int:
    """Copy items to a new partition; gives that."""
    new = await create(transaction)
    query = f"INSERT INTO {table(new)} SELECT item, y, x FROM {table(partition)} WHERE item = ANY(%s)"
    await transaction.run(query, list(items))
    return new
