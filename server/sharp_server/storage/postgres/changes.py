"""Listening to what is committed, by this server or another: PostgreSQL's LISTEN on a session of its own.

Notifications are lost while there is no connection, so the first thing to come after each connection is a change named
"lost". It must never end by itself, and never fail because the database is away.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import psycopg

from sharp_server.errors import StoreUnavailable
from sharp_server.storage.postgres import connections
from sharp_server.storage.postgres.transaction import CHANNEL
from sharp_server.storage.records import Change

log = logging.getLogger(__name__)

LOST = Change("", "lost", 0)

_SECONDS_BETWEEN_TRIES = 0.5
_SECONDS_BETWEEN_LOOKS = 10.0
"""So often an idle connection is tried, so that one that died silently is noticed."""


async def changes(dsn: str) -> AsyncIterator[Change]:
    """What is committed from now on, for ever."""
    while True:
        try:
            session = await connections.connect(dsn)
        except (StoreUnavailable, psycopg.Error) as error:
            log.debug("can't listen for changes: %s", error)
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        try:
            await session.execute(f"LISTEN {CHANNEL}")
            yield LOST
            while True:
                async for notification in session.notifies(timeout=_SECONDS_BETWEEN_LOOKS):
                    payload = json.loads(notification.payload)
                    yield Change(payload["learner"], payload["what"], payload["number"])
                await session.execute("SELECT 1")
        except psycopg.Error as error:
            log.warning("the connection that listens for changes was lost: %s", " ".join(str(error).split()))
        finally:
            await session.close()
