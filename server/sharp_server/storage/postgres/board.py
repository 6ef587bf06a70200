"""`storage.board.Board` over PostgreSQL: three tables beside the journal's, and what is read of the journal itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from sharp_server.errors import StoreUnavailable
from sharp_server.storage.board import LearnerPlacement, OwnedLearner, Place, Server, Standing
from sharp_server.storage.postgres import connections, schema
from sharp_server.storage.postgres.connections import AsyncSession
from sharp_server.storage.records import BeyondKey

_SECONDS_TO_CONNECT = 2.0
"""Short: what a member of a cluster does meanwhile is to look again."""


class PostgresBoard:
    """The board in the database that holds the journal."""

    def __init__(self, dsn: str) -> None:
        self._pool = connections.make_pool(dsn, 2, _SECONDS_TO_CONNECT)

    async def open(self) -> None:
        """Connect, and make the tables if nobody has."""
        await self._pool.open()
        async with self._session() as session:
            await schema.migrate(session)

    async def close(self) -> None:
        """End the connections."""
        await self._pool.close(1.0)

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[AsyncSession]:
        try:
            async with self._pool.connection() as session:
                yield session
        except PoolTimeout as error:
            raise StoreUnavailable(str(error)) from None
        except psycopg.Error as error:
            if not connections.is_unavailable(error):
                raise
            raise connections.unavailable(error) from None

    async def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with self._session() as session:
            return await (await session.execute(query.encode(), values)).fetchall()

    async def _run(self, query: str, *values: object) -> None:
        async with self._session() as session:
            await session.execute(query.encode(), values)

    # ---- who is there -----------------------------------------------------------------------------------------------

    async def enter(self, server: Server) -> None:
        """A server is there; an older start of it is not."""
        await self._run(
            "INSERT INTO cluster_servers (node, owner, address, http) VALUES (%s, %s, %s, %s) ON CONFLICT (node) "
            "DO UPDATE SET owner = excluded.owner, address = excluded.address, http = excluded.http",
            *(server.node, server.owner, server.address, server.http),
        )

    async def leave(self, server: Server) -> None:
        """A server is gone, unless it has been started again."""
        await self._run("DELETE FROM cluster_servers WHERE node = %s AND owner = %s", server.node, server.owner)

    async def servers(self) -> list[Server]:
        """Who is there, as far as anybody knows."""
        return [Server(*row) for row in await self._rows("SELECT node, owner, address, http FROM cluster_servers")]

    # ---- who has what -----------------------------------------------------------------------------------------------

    async def learners(self) -> list[OwnedLearner]:
        """All learners by name, and who owns them."""
        rows = await self._rows("SELECT id, uid, name, owner, epoch FROM learners ORDER BY name")
        return [OwnedLearner(*row) for row in rows]

    async def places(self) -> list[Place]:
        """All learners, and where their owners are reached; an owner that is not there is nobody."""
        rows = await self._rows(
            "SELECT l.id, l.uid, l.name, coalesce(s.owner, ''), coalesce(s.address, ''), coalesce(s.http, '') "
            "FROM learners l LEFT JOIN cluster_servers s ON s.owner = l.owner"
        )
        return [Place(*row) for row in rows]

    async def standings(self, uids: Sequence[str]) -> dict[str, Standing]:
        """How far learners are, by uid."""
        rows = await self._rows(
            "SELECT uid, version, coalesce(head, 0), next_place, examples FROM learners WHERE uid = ANY(%s)", list(uids)
        )
        return {row[0]: Standing(*row[1:]) for row in rows}

    async def lesson_keys(self, learner: int) -> list[BeyondKey]:
        """Where the lessons that are part of no version yet stand in the order in which they become known."""
        rows = await self._rows(
            "SELECT counted, place FROM lessons WHERE learner = %s AND pending ORDER BY counted, place", learner
        )
        return [BeyondKey(*row) for row in rows]

    # ---- who should do what -----------------------------------------------------------------------------------------

    async def placements(self) -> list[LearnerPlacement]:
        """Who should own and follow which learner, as the coordinator said last."""
        rows = await self._rows("SELECT uid, node, followers FROM cluster_placements")
        return [LearnerPlacement(uid, node or None, tuple(followers)) for uid, node, followers in rows]

    async def want(self, placements: Iterable[LearnerPlacement], gone: Sequence[str] = ()) -> None:
        """Say who should; `gone`: learners that are no more."""
        values = [(placement.uid, placement.owner or "", list(placement.followers)) for placement in placements]
        async with self._session() as session, session.transaction():
            async with session.cursor() as cursor:
                if values:
                    await cursor.executemany(
                        "INSERT INTO cluster_placements (uid, node, followers) VALUES (%s, %s, %s) ON CONFLICT (uid) "
                        "DO UPDATE SET node = excluded.node, followers = excluded.followers",
                        values,
                    )
            await session.execute("DELETE FROM cluster_placements WHERE uid = ANY(%s)", (list(gone),))

    async def lead(self, holder: str, seconds: float) -> bool:
        """Be the coordinator for so long, or go on being it, unless another one is."""
        rows = await self._rows(
            "INSERT INTO cluster_coordinator AS c (one, holder, until) VALUES (TRUE, %s, now() + %s * interval '1 s') "
            "ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, until = excluded.until "
            "WHERE c.holder = excluded.holder OR c.until < now() RETURNING holder",
            *(holder, seconds),
        )
        return bool(rows)
