"""The learners that this server owns: takes up those that it should and may, gives up those that it should not.

Taking up begins with the claim, which raises the epoch: only then is the learner read, so nothing that the owner before
it wrote is missed. Giving up ends with the release, after the last write. A learner that another server has claimed
is let go of at once, whatever this one was about to do with it: the database refuses its writes.
"""

from __future__ import annotations

import logging

from sharp_server.context import ClusterParts
from sharp_server.errors import RpcError
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.storage.board import OwnedLearner, Server

log = logging.getLogger(__name__)

_SECONDS_TO_LEAVE = 60.0
"""How long a learner that moves waits for the end of its phase; then the phase is learned again elsewhere."""


class OwnedLearners:
    """Belongs to the event loop."""

    def __init__(self, parts: ClusterParts) -> None:
        self._parts, self._storage = parts, parts.storage
        self._untaken: set[str] = set()
        """Learners (uid) that the database may have as this server's, and that are not served here: they were claimed
        and are not taken up yet, or let go of and not released yet."""

    def is_untaken(self, uid: str) -> bool:
        """Whether a learner may be this server's without being served here: it has to be taken up (again)."""
        return uid in self._untaken

    async def take(self, learner: OwnedLearner, server: Server) -> None:
        """Own a learner from now on, whoever had it."""
        self._untaken.add(learner.uid)
        await self._storage.claim(learner.id, server.owner, server.address)
        row = next((row for row in await self._storage.learners() if row.id == learner.id), None)
        if row is None:  # it was deleted meanwhile
            self._untaken.discard(learner.uid)
            return
        served = await self._parts.start_up.take_up(row)
        self._parts.batcher.forget(served.id)
        self._parts.registry.add(served)
        self._untaken.discard(learner.uid)
        self._parts.scheduler.wake()
        log.info("%s is owned here, from version %d", served.name, served.model.version)

    async def give_up(self, served: ServedLearner, epoch: int) -> None:
        """Let another server have a learner: gently, after the phase that is being learned."""
        with served.change():
            await self._parts.scheduler.leave(served, _SECONDS_TO_LEAVE)
            async with self._parts.scheduler.paused(served):
                self._let_go(served)
                self._untaken.add(served.uid)  # if the database is away just now, nobody else may take it up
                await self._storage.release(served.id, epoch)
                self._untaken.discard(served.uid)
        log.info("%s was given up", served.name)

    async def lose(self, served: ServedLearner, owner: str) -> None:
        """Another server owns it already, if that is so: it may just have been made or claimed."""
        if any(row.learner == served.id and row.owner == owner for row in await self._storage.owners()):
            return
        self._let_go(served)
        log.warning("%s is owned by another server now", served.name)
        async with self._parts.scheduler.paused(served):
            pass

    def _let_go(self, served: ServedLearner) -> None:
        farewell = RpcError("NOT_OWNER", "the learner goes on at another server", retry=0.2, learner=served.name)
        self._parts.registry.remove(served)
        served.leave(farewell)
        self._parts.teaching.forget(served, farewell)
        self._parts.batcher.forget(served.id)
        self._parts.readers.add(served)  # predictions go on as it is, until it is followed or not
