"""The journal's one writer per server: a task that gathers what waits and commits it in one transaction.

One piece of work that fails takes nothing with it: the group is then run again, each piece in a savepoint of its own.
So work changes nothing but the database, and may run twice. An answer is given only after the commit.

If the connection is lost before the commit was sent, nothing of the group was kept and everyone in it hears so; if it
is lost while the commit is under way, nobody knows yet. Each group writes its own name into the row of its writer, so
the next session finds out: until then those in that group wait, because a wrong answer could not be taken back.

The writer's session holds a lock on the database, so that whoever writes is the only server, or, with an owner's name,
the only one of that name: a session that lost its lock has lost its connection, and can't write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from sharp_server.errors import StoreUnavailable
from sharp_server.storage.postgres import connections, locks, schema
from sharp_server.storage.postgres.connections import AsyncSession
from sharp_server.storage.postgres.transaction import Fence, Transaction

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_GROUP_BYTES = 8 << 20
_GROUP_ITEMS = 256
_WAITING_BYTES = 24 << 20
_WAITING_ITEMS = 256
"""More than this is not taken in before some of it was handed to PostgreSQL."""
_ATTEMPTS = 5
"""Of a transaction that came into conflict with another server's, or of a read whose table was just dropped."""
_READERS = 4
_RECONNECT_SECONDS = 0.5
_CONNECT_SECONDS = 4.0
"""How long a reader waits for a connection."""


@dataclass(slots=True)
class _Work:
    future: asyncio.Future[Any]
    run: Callable[[Transaction], Awaitable[Any]]
    weight: int


_Outcomes = list[tuple[_Work, Any, BaseException | None]]


@dataclass(frozen=True)
class _Doubt:
    """A group whose commit was sent and not answered."""

    name: str
    outcomes: _Outcomes
    fence: Fence


class Journal:
    """Gives access to the journal's database, on the event loop that called `start`."""

    def __init__(self, dsn: str, owner: str) -> None:
        self._dsn, self._owner = dsn, owner
        self.fence = Fence(owner)
        self.commits = 0
        self._session: AsyncSession | None = None
        self._pool: AsyncConnectionPool[AsyncSession] | None = None
        self._waiting: deque[_Work] = deque()
        self._waiting_bytes = 0
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._closing = False
        self._doubt: _Doubt | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, make or migrate the tables, and take the lock; raises StoreUnavailable, or StoreInUseError."""
        self._session = session = await connections.connect(self._dsn)
        try:
            await connections.check_server(session)
            await locks.acquire(session, self._owner, patient=True)
            await schema.migrate(session)
            await locks.enter_writer(session, self._owner)
        except BaseException as error:
            await session.close()
            self._session = None
            if connections.is_unavailable(error):
                raise connections.unavailable(error) from None
            raise
        self._pool = connections.make_pool(self._dsn, _READERS, _CONNECT_SECONDS)
        await self._pool.open()
        self._task = asyncio.create_task(self._write_loop(), name="journal-write")

    # ---- for whoever has work ----------------------------------------------------------------------------------------

    async def write(
        self, work: Callable[Concatenate[Transaction, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in a transaction; returns its result once that is on disk."""
        result: T = await self.submit(lambda transaction: work(transaction, *args, **kwargs), 0)
        return result

    def submit(self, run: Callable[[Transaction], Awaitable[T]], weight: int) -> asyncio.Future[T]:
        """The same without waiting; `weight` is about how many bytes it writes. Order is kept."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing or self._task is None:
            future.set_exception(StoreUnavailable("the journal is closed"))
            return future
        self._waiting.append(_Work(future, run, weight))
        self._waiting_bytes += weight
        self._more.set()
        return future

    async def room(self) -> None:
        """Wait until little enough waits to be handed to PostgreSQL that more may be submitted."""
        while len(self._waiting) >= _WAITING_ITEMS or self._waiting_bytes >= _WAITING_BYTES:
            self._room.clear()
            await self._room.wait()

    async def read(
        self, work: Callable[Concatenate[Transaction, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` against what is committed, beside the writer, all of it at one moment."""
        if self._pool is None:
            raise StoreUnavailable("the journal is closed")
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            try:
                async with self._pool.connection() as session:
                    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    try:
                        return await work(Transaction(session, self.fence), *args, **kwargs)
                    finally:
                        if not session.broken:
                            await session.execute("ROLLBACK")
            except psycopg.errors.UndefinedTable:  # examples that were learned or moved a moment ago
                if last:
                    raise
            except psycopg.Error as error:
                if not connections.is_unavailable(error):
                    raise
                if last or isinstance(error, PoolTimeout) or not connections.is_conflict(error) and attempt:
                    raise connections.unavailable(error) from None
        raise AssertionError("unreachable")

    async def read_in_time(
        self, work: Callable[Concatenate[Transaction, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same, waiting for a database that is away: for whoever has begun something that must come to its end."""
        while True:
            try:
                return await self.read(work, *args, **kwargs)
            except StoreUnavailable:
                if self._closing:
                    raise
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def close(self) -> None:
        """Finish what waits and close the sessions."""
        self._closing = True
        if self._task is not None:
            self._more.set()
            await self._task
            self._task = None
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        await self._disconnect()

    # ---- the writer -------------------------------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        while not self._closing or self._waiting:
            self._more.clear()
            if not self._waiting and not self._closing:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), _RECONNECT_SECONDS if self._doubt else None)
            try:
                session = await self._connected()
            except Exception as error:  # whatever it is: a writer that ended would leave everybody waiting
                failure = connections.unavailable(error)
                self._settle([(work, None, failure) for work in self._take(every=True)])
                continue
            group = self._take()
            if group:
                await self._commit(session, group)
        if self._doubt is not None:
            failure = StoreUnavailable("the journal was closed before it was known whether this was kept")
            self._settle([(work, None, failure) for work, _, _ in self._doubt.outcomes])

    def _take(self, every: bool = False) -> list[_Work]:
        group: list[_Work] = []
        weight = 0
        while self._waiting and (every or len(group) < _GROUP_ITEMS and weight < _GROUP_BYTES):
            group.append(self._waiting.popleft())
            weight += group[-1].weight
        if every:
            self._make_room(weight)
        return group

    def _make_room(self, weight: int) -> None:
        self._waiting_bytes -= weight
        self._room.set()

    async def _connected(self) -> AsyncSession:
        """The writer's session, made again if it was lost; then a commit in doubt is cleared up."""
        if self._session is not None and not self._session.closed:
            return self._session
        await self._disconnect()
        session = await connections.connect(self._dsn)
        try:
            await locks.acquire(session, self._owner)
            last_group = await locks.enter_writer(session, self._owner)
        except BaseException:
            await session.close()
            raise
        self._session = session
        log.info("connected to the %s again", connections.describe(self._dsn))
        if self._doubt is not None:
            doubt, self._doubt = self._doubt, None
            if doubt.name == last_group:
                self._committed(doubt)
            else:
                failure = StoreUnavailable("the connection was lost, and nothing was kept")
                self._settle([(work, None, failure) for work, _, _ in doubt.outcomes])
        return session

    async def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                await session.close()

    async def _commit(self, session: AsyncSession, group: list[_Work]) -> None:
        weight = sum(work.weight for work in group)
        doubt: _Doubt | None = None
        try:
            outcomes, fence = await self._run_all(session, group)
            name = secrets.token_hex(8)
            await session.execute("UPDATE writers SET last_group = %s WHERE owner = %s", (name, self._owner))
            self._make_room(weight)
            weight = 0
            doubt = _Doubt(name, outcomes, fence)
            await session.execute("COMMIT")
            self._committed(doubt)
        except Exception as error:
            self._make_room(weight)
            await self._failed(session, group, doubt, error)

    async def _failed(self, session: AsyncSession, group: list[_Work], doubt: _Doubt | None, error: Exception) -> None:
        """Nothing was kept, or nobody knows."""
        failure = connections.unavailable(error) if connections.is_unavailable(error) else error
        broken = session.closed
        if not broken:
            try:
                await session.execute("ROLLBACK")
            except psycopg.Error:
                broken = True
        if broken:
            await self._disconnect()
            if doubt is not None:
                log.warning("the connection was lost in a commit of %d items: %s", len(group), failure)
                self._doubt = doubt
                self._more.set()
                return
        log.warning("the journal could not be written, nothing of %d items was kept: %s", len(group), failure)
        self._settle([(work, None, failure) for work in group])

    def _committed(self, done: _Doubt) -> None:
        self.commits += 1
        self.fence.claimed = done.fence.claimed
        self._settle(done.outcomes)

    async def _run_all(self, session: AsyncSession, group: list[_Work]) -> tuple[_Outcomes, Fence]:
        """Begin a transaction and run everything in it; one that fails leaves nothing behind."""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._run_once(session, group)
            except psycopg.Error as error:
                if not connections.is_conflict(error) or attempt == _ATTEMPTS - 1:
                    raise
                await session.execute("ROLLBACK")
        raise AssertionError("unreachable")

    async def _run_once(self, session: AsyncSession, group: list[_Work]) -> tuple[_Outcomes, Fence]:
        await session.execute("BEGIN")
        transaction = Transaction(session, self.fence)
        try:
            outcomes: _Outcomes = [(work, await work.run(transaction), None) for work in group]
            return outcomes, transaction.fence
        except Exception as error:  # once more, each by itself: this is rare
            if connections.is_unavailable(error):
                raise
            await session.execute("ROLLBACK")
        await session.execute("BEGIN")
        transaction = Transaction(session, self.fence)
        outcomes = []
        for work in group:
            before = Fence(transaction.fence.owner, dict(transaction.fence.claimed))
            await session.execute("SAVEPOINT work")
            try:
                outcomes.append((work, await work.run(transaction), None))
            except Exception as error:  # for whoever asked; the others go on
                if connections.is_unavailable(error):
                    raise
                await session.execute("ROLLBACK TO work")
                transaction.give_back(before)
                outcomes.append((work, None, error))
            await session.execute("RELEASE work")
        return outcomes, transaction.fence

    @staticmethod
    def _settle(outcomes: _Outcomes) -> None:
        for work, result, error in outcomes:
            if work.future.done():  # whoever asked has gone
                continue
            if error is not None:
                work.future.set_exception(error)
            else:
                work.future.set_result(result)
