"""What a statement function works with: one transaction, and the right to write to a learner.

`own` locks the learner's row and compares owner and epoch with those of this server's claim; whoever writes to a
learner calls it first. The lock holds until the end of the transaction, so a claim by another server waits for what was
begun, and whatever begins later is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sharp_server.errors import RpcError, StaleOwnerError
from sharp_server.storage.postgres.connections import AsyncSession

CHANNEL = "sharp"


@dataclass
class Fence:
    """The owner that a storage speaks for, and the epochs of its claims."""

    owner: str
    claimed: dict[int, int] = field(default_factory=dict)
    """Learner → epoch."""

    def admits(self, learner: int, owner: str, epoch: int) -> bool:
        """Whether this server may write to a learner that has this owner and epoch."""
        if not self.owner:  # the only server: a lock on the database keeps others out
            return not owner
        return owner == self.owner and self.claimed.get(learner) == epoch


class Transaction:
    """One transaction, on a session that somebody else began it on."""

    def __init__(self, session: AsyncSession, fence: Fence) -> None:
        self._cursor = session.cursor(binary=True)
        self.fence = Fence(fence.owner, dict(fence.claimed))
        """As it is if this transaction is committed."""
        self._uids: dict[int, str] = {}
        """Of the learners whose rows are locked."""

    async def run(self, query: str, *values: object) -> int:
        """Execute a statement of ours (never a client's text); gives how many rows it touched."""
        await self._cursor.execute(query, values)
        return self._cursor.rowcount

    async def many(self, query: str, values: Iterable[tuple[object, ...]]) -> None:
        """Execute it for each of these."""
        rows = list(values)
        if rows:
            await self._cursor.executemany(query, rows)

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        await self._cursor.execute(query, values)
        return await self._cursor.fetchall()

    async def row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        await self._cursor.execute(query, values)
        return await self._cursor.fetchone()

    async def value(self, query: str, *values: object) -> Any:
        """The one value of the one row that there is."""
        found = await self.row(query, *values)
        assert found is not None, query
        return found[0]

    # ---- the right to write ------------------------------------------------------------------------------------------

    async def own(self, learner: int) -> None:
        """Lock a learner's row for this transaction, or refuse: it was deleted, or is another server's."""
        if not await self.own_if_there(learner):
            raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted")

    async def own_if_there(self, learner: int) -> bool:
        """The same, but a learner that was deleted is no error."""
        if learner in self._uids:
            return True
        row = await self.row("SELECT owner, epoch, address, uid FROM learners WHERE id = %s FOR UPDATE", learner)
        if row is None:
            return False
        owner, epoch, address, uid = row
        if not self.fence.admits(learner, owner, epoch):
            raise StaleOwnerError(learner, address)
        self._uids[learner] = uid
        return True

    async def own_episode(self, episode: int) -> int | None:
        """The same by an episode; gives its learner, None if there is none."""
        row = await self.row("SELECT learner FROM episodes WHERE id = %s", episode)
        return int(row[0]) if row is not None and await self.own_if_there(row[0]) else None

    def give_back(self, fence: Fence) -> None:
        """Whatever was locked or claimed since a savepoint is so no more."""
        self._uids.clear()
        self.fence = Fence(fence.owner, dict(fence.claimed))

    def give_up(self, learner: int) -> None:
        """A learner is no longer this server's, or there is a new claim."""
        self._uids.pop(learner, None)
        self.fence.claimed.pop(learner, None)

    # ---- notifying others --------------------------------------------------------------------------------------------

    async def notify(self, learner: int, what: str, number: int) -> None:
        """Notify whoever listens, when this is committed. The learner must be owned."""
        await self.notify_uid(self._uids[learner], what, number)

    async def notify_uid(self, uid: str, what: str, number: int) -> None:
        """The same by a learner's uid."""
        payload = json.dumps({"learner": uid, "what": what, "number": number})
        await self.run("SELECT pg_notify(%s, %s)", CHANNEL, payload)
