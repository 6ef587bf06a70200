"""A journal that several simulated servers share, with its fence: who does not own a learner writes nothing to it.

The fence of the real shared journal is a lock and a comparison in PostgreSQL (`storage.postgres.transaction`). Here one
writer at a time comes for free, and triggers make the comparison, by the same `Fence`: whatever statement changes
something of a learner, owner and epoch are compared within its transaction, and no way around is left.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from reliability.simulation.storage import SimulatedJournal, SimulatedStorage
from reliability.simulation.world import Disk, World
from sharp_server.errors import RpcError, StaleOwnerError
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.postgres.transaction import Fence
from sharp_server.storage.records import LearnerRow, NewLearner, OwnerRow, StreamRow
from sharp_server.storage.sqlite import learners, lessons, streams
from sharp_server.storage.sqlite.journal import _ERASE

T = TypeVar("T")

_OWNERS = """CREATE TABLE owners (
    learner INTEGER PRIMARY KEY, owner TEXT NOT NULL, address TEXT NOT NULL, epoch INTEGER NOT NULL)"""
_FENCED = {
    "learners": "id",
    **dict.fromkeys(("classes", "forgotten", "renamed", "streams", "batch_slices"), "learner"),
    **dict.fromkeys(("lessons", "episodes", "versions", "qualities", "snapshots"), "learner"),
}
"""Table → the column that says whose a row is."""


class SharedDisk(Disk):
    """The database, and who writes to it just now."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        """Writes of servers that did not own what they wrote to."""
        self._fence: Fence | None = None
        self._stale: list[StaleOwnerError] = []
        """Why a trigger failed."""
        self.connection.execute(_OWNERS)
        self.connection.create_function("fence", 4, self._compare)
        for table, column in _FENCED.items():
            for event, row in (("INSERT", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD")):
                self.connection.execute(
                    f"CREATE TRIGGER fence_{table}_{event} BEFORE {event} ON {table} BEGIN "
                    f"SELECT fence(learner, owner, address, epoch) FROM owners WHERE learner = {row}.{column}; END"
                )

    def _compare(self, learner: int, owner: str, address: str, epoch: int) -> None:
        """Called by the triggers."""
        assert self._fence is not None
        if not self._fence.admits(learner, owner, epoch):
            self._stale.append(StaleOwnerError(learner, address))
            raise self._stale[-1]

    def write_as(self, fence: Fence, run: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in the transaction under way, in the name of an owner."""
        self._fence, self.writer = fence, fence.owner
        try:
            return run(self.connection)
        except (sqlite3.OperationalError, StaleOwnerError) as error:  # SQLite says no more than that a trigger failed
            refusal = self._stale.pop() if self._stale else error
            self.refusals += isinstance(refusal, StaleOwnerError)
            raise refusal from None
        finally:
            self._fence, self.writer = None, ""


class SharedJournal(SimulatedJournal):
    """One server's way to it."""

    def __init__(self, world: World, disk: SharedDisk, fence: Fence) -> None:
        super().__init__(world)
        self._disk, self._fence = disk, fence

    def submit(self, run: Callable[[sqlite3.Connection], T], weight: int) -> asyncio.Future[T]:
        """Queue it, to be done in the name of this server's owner."""
        if run is _ERASE:
            return super().submit(run, weight)
        return super().submit(lambda _: self._disk.write_as(self._fence, run), weight)


class SharedSimulatedStorage(SimulatedStorage):
    """`Storage` and `Ownership` of one start of a server."""

    def __init__(self, world: World, folder: DataFolder, owner: str) -> None:
        super().__init__(world, folder)
        assert isinstance(world.disk, SharedDisk)
        self._fence = Fence(owner)
        self._journal = SharedJournal(world, world.disk, self._fence)

    async def claim(self, learner: int, owner: str, address: str) -> int:
        """Give a learner an owner; gives the new epoch."""
        return await self._journal.write(self._claim, learner, owner, address)

    def _claim(self, connection: sqlite3.Connection, learner: int, owner: str, address: str) -> int:
        if connection.execute("SELECT 1 FROM learners WHERE id = ?", (learner,)).fetchone() is None:
            raise RpcError("LEARNER_NOT_FOUND", "the learner was deleted")
        epoch = connection.execute(
            "INSERT INTO owners VALUES (?1, ?2, ?3, 1) ON CONFLICT (learner) "
            "DO UPDATE SET owner = ?2, address = ?3, epoch = epoch + 1 RETURNING epoch",
            (learner, owner, address),
        ).fetchone()[0]
        self._fence.claimed.pop(learner, None)
        if owner == self._fence.owner:
            self._fence.claimed[learner] = epoch
        self._disk.note("claim", self._learner(learner), owner=owner, epoch=epoch)
        return int(epoch)

    async def release(self, learner: int, epoch: int) -> None:
        """Give a learner up, if it is still owned under this epoch."""
        await self._journal.write(self._release, learner, epoch)

    def _release(self, connection: sqlite3.Connection, learner: int, epoch: int) -> None:
        done = connection.execute(
            "UPDATE owners SET owner = '', address = '' WHERE learner = ? AND owner = ? AND epoch = ?",
            (learner, self._fence.owner, epoch),
        )
        if not done.rowcount:
            raise StaleOwnerError(learner, self._owner(learner)[1])
        self._fence.claimed.pop(learner, None)
        self._disk.note("claim", self._learner(learner), owner="", epoch=epoch)

    async def owners(self) -> list[OwnerRow]:
        """All learners by name, with their owners."""
        query = (
            "SELECT l.id, l.name, coalesce(o.owner, ''), coalesce(o.address, ''), coalesce(o.epoch, 0) "
            "FROM learners l LEFT JOIN owners o ON o.learner = l.id ORDER BY l.name"
        )
        return [OwnerRow(*row) for row in await self._journal.read(lambda c: c.execute(query).fetchall())]

    async def create_learner(self, new: NewLearner, limit: int) -> LearnerRow:
        """Make a learner; it belongs to whoever makes it."""

        def run(connection: sqlite3.Connection) -> LearnerRow:
            row = learners.create(connection, new, limit)
            self._claim(connection, row.id, self._fence.owner, self._fence.owner)
            return row

        return await self._journal.submit(run, 0)

    # ---- writes that may find nothing to change, and are the owner's alone all the same ------------------------------

    async def open_stream(self, learner: int, name: str, boundaries: str) -> StreamRow:
        """The stream of this name, made if it is new."""

        def run(connection: sqlite3.Connection) -> StreamRow:
            self._admit(learner)
            return streams.open_stream(connection, learner, name, boundaries)

        return await self._journal.submit(run, 0)

    async def drop_lesson(self, learner: int, place: int) -> None:
        """Take back a lesson that nothing knows."""

        def run(connection: sqlite3.Connection) -> None:
            self._admit(learner)
            lessons.drop(connection, learner, place)

        await self._journal.submit(run, 0)

    def _admit(self, learner: int) -> None:
        """Compare at once: triggers see only what finds something to change."""
        owner, address, epoch = self._owner(learner)
        if not self._fence.admits(learner, owner, epoch):
            raise StaleOwnerError(learner, address)

    def _owner(self, learner: int) -> tuple[str, str, int]:
        query = "SELECT owner, address, epoch FROM owners WHERE learner = ?"
        row: tuple[str, str, int] | None = self._disk.connection.execute(query, (learner,)).fetchone()
        return row or ("", "", 0)
