"""Who may write to a database at all: one server without a name, or any number with different names.

The locks are the session's (advisory locks), so they end with its connection, however that ends. The row in `writers`
says which group of an owner was committed last.
"""

from __future__ import annotations

import asyncio

from sharp_server.storage.interface import StoreInUseError
from sharp_server.storage.postgres.connections import AsyncSession

_DATABASE = 0x5348_4152_5000_0001
_PATIENCE = 10.0
"""Seconds in which PostgreSQL notices that the server before, just killed, is gone."""


async def acquire(session: AsyncSession, owner: str, *, patient: bool = False) -> None:
    """Take the locks, or raise StoreInUseError."""
    deadline = asyncio.get_running_loop().time() + (_PATIENCE if patient else 0.0)
    while not await _try(session, owner):
        if asyncio.get_running_loop().time() >= deadline:
            name = f" as {owner!r}" if owner else ""
            raise StoreInUseError(f"another server uses the database{name}")
        await asyncio.sleep(0.1)


async def _try(session: AsyncSession, owner: str) -> bool:
    mode = "_shared" if owner else ""
    if not await _value(session, f"SELECT pg_try_advisory_lock{mode}(%s)", _DATABASE):
        return False
    if not owner or await _value(session, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", owner):
        return True
    await session.execute("SELECT pg_advisory_unlock_shared(%s)", (_DATABASE,))
    return False


async def enter_writer(session: AsyncSession, owner: str) -> str:
    """Make the row of a writer if there is none; gives the name of the group it committed last.

    A server without a name is the only one: whatever had an owner before is its own.
    """
    async with session.transaction():
        await session.execute("INSERT INTO writers (owner) VALUES (%s) ON CONFLICT DO NOTHING", (owner,))
        if not owner:
            await session.execute("UPDATE learners SET owner = '', address = '', epoch = epoch + 1 WHERE owner <> ''")
        return str(await _value(session, "SELECT last_group FROM writers WHERE owner = %s", owner))


async def _value(session: AsyncSession, query: str, value: object) -> object:
    row = await (await session.execute(query, (value,))).fetchone()
    assert row is not None
    return row[0]
