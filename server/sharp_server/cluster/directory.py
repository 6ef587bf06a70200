"""Where learners are: owners and addresses as the database has them, kept in memory, a moment old at most.

It is a hint, never the truth: a server that is asked in vain says NOT_OWNER, and the database refuses whoever writes
without being the owner. When the database is away, the last that was read stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from sharp_server.storage.board import Place

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.2
"""The database is asked about learners that nobody owns this often at most."""


Read = Callable[[], Awaitable[Iterable[Place]]]
"""Reads all places from the database."""


class Directory:
    """All learners of the cluster by name; belongs to the event loop."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._by_name: dict[str, Place] = {}
        self._reading: asyncio.Task[None] | None = None
        self._read_at = 0.0

    @property
    def names(self) -> list[str]:
        """The names of all learners, sorted."""
        return sorted(self._by_name)

    @property
    def places(self) -> list[Place]:
        """Where all learners are."""
        return list(self._by_name.values())

    def find(self, name: str) -> Place | None:
        """Where a learner is, as far as is known."""
        return self._by_name.get(name)

    async def look_up(self, name: str) -> Place | None:
        """The same; the database is asked if nothing is known of it, or nobody owns it."""
        found = self._by_name.get(name)
        if found is None or (not found.address and time.monotonic() - self._read_at >= _SECONDS_BETWEEN_LOOKS):
            await self.refresh()
        return self._by_name.get(name)

    async def refresh(self) -> None:
        """Read the database, once for all who ask meanwhile; if it is away, everything stays as it is known."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._refresh())
            self._reading.add_done_callback(self._done)
        await asyncio.shield(self._reading)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    async def _refresh(self) -> None:
        try:
            places = list(await self._read())
        except Exception as error:
            log.warning("where learners are could not be read: %s", error)
        else:
            self._by_name = {place.name: place for place in places}
        self._read_at = time.monotonic()
