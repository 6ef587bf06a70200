"""How a connection to PostgreSQL is made, what a session is like, and which errors mean that the database is gone.

A session commits durably, and notices within half a minute that the other side is dead. No text that leaves this module
holds a password.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, conninfo
from psycopg_pool import AsyncConnectionPool

from sharp_server.errors import StoreUnavailable

log = logging.getLogger(__name__)

AsyncSession = AsyncConnection[tuple[Any, ...]]
Session = Connection[tuple[Any, ...]]

OLDEST = 160000
"""The oldest PostgreSQL that will do, as its server_version_num."""

_DEFAULTS: dict[str, Any] = {
    "application_name": "sharp",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

_SESSION = """
    SET TIME ZONE 'UTC';
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 20000;
    -- Whoever is cut off in the middle of a transaction must not keep a learner's row or a table of examples locked.
    SET idle_in_transaction_session_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""


def parameters(dsn: str) -> str:
    """The DSN with our settings where it has none of its own."""
    return conninfo.make_conninfo("", **(_DEFAULTS | conninfo.conninfo_to_dict(dsn)))


def describe(dsn: str) -> str:
    """Which database that is, in words for the log: never its password."""
    found = conninfo.conninfo_to_dict(dsn)
    place = found.get("host") or found.get("hostaddr") or "the local socket"
    return f"database {found.get('dbname') or found.get('user') or ''!s} at {place}"


async def connect(dsn: str) -> AsyncSession:
    """A session of the event loop's; transactions are begun and ended by hand."""
    try:
        session: AsyncSession = await AsyncConnection.connect(parameters(dsn), autocommit=True)
    except psycopg.Error as error:
        raise StoreUnavailable(_one_line(error)) from None
    try:
        await prepare(session)
    except BaseException:
        await session.close()
        raise
    return session


async def prepare(session: AsyncSession) -> None:
    """Give a new session its settings."""
    await session.execute(_SESSION)


def make_pool(dsn: str, most: int, seconds: float) -> AsyncConnectionPool[AsyncSession]:
    """Up to `most` sessions in which every statement stands for itself; whoever needs one waits for so many seconds."""
    return AsyncConnectionPool(
        parameters(dsn),
        connection_class=AsyncConnection[tuple[Any, ...]],
        kwargs={"autocommit": True},
        configure=prepare,
        min_size=1,
        max_size=most,
        timeout=seconds,
        reconnect_timeout=2.0,
        check=AsyncConnectionPool.check_connection,
        open=False,
    )


@contextlib.contextmanager
def session_here(dsn: str) -> Iterator[Session]:
    """A session of whoever waits for it, to read; one that is lost on the way is a `StoreUnavailable` too."""
    try:
        with Connection.connect(parameters(dsn), autocommit=True) as session:
            session.execute(_SESSION)
            yield session
    except psycopg.Error as error:
        if not is_unavailable(error):
            raise
        raise unavailable(error) from None


def is_unavailable(error: BaseException) -> bool:
    """Whether an error means that the database can't be used now, rather than that a statement was wrong."""
    return isinstance(
        error,
        (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction, StoreUnavailable),
    )


def is_conflict(error: BaseException) -> bool:
    """Whether the same transaction may simply be run again."""
    return isinstance(error, (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure))


def unavailable(error: BaseException) -> StoreUnavailable:
    """The same, as the callers know it."""
    return error if isinstance(error, StoreUnavailable) else StoreUnavailable(_one_line(error))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


async def check_server(session: AsyncSession) -> None:
    """Refuse a PostgreSQL that is too old, and warn of one that does not keep what it says it has."""
    if session.info.server_version < OLDEST:
        raise StoreUnavailable(f"PostgreSQL {OLDEST // 10000} or later is needed")
    row = await (await session.execute("SHOW fsync")).fetchone()
    if row is None or row[0] != "on":
        log.warning("PostgreSQL runs with fsync off: a power cut loses what was acknowledged")
