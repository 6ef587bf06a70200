"""Says who should own and follow which learner: looks who is there, places, writes it down, a few moves at a time.

It decides nothing that matters for what is durable: servers claim learners themselves, and the database refuses whoever
was late. So it may die, be started twice or be wrong about who is alive; the worst is a move too many. It is a plain
asyncio object; Ray only keeps one of it running.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sharp_server.cluster.placement import place
from sharp_server.errors import StoreUnavailable
from sharp_server.storage.board import Board, LearnerPlacement, OwnedLearner, Server

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_OF_A_LEASE = 5.0
"""For which another coordinator waits that has not heard of this one."""
_MISSED_PROBES = 3
"""A server that did not answer so often in a row is gone."""
_MOVES_AT_ONCE = 4
"""Learners that leave a living server at the same time: their producers reconnect."""

Probe = Callable[[Server], Awaitable[bool]]
"""Asks a server whether it lives; gives up within a second."""
Replicas = Callable[[str], int]
"""How many followers the learner of that name should have."""


class Coordinator:
    """One of it works at a time, whoever has the lease in the database."""

    def __init__(self, board: Board, probe: Probe, replicas: Replicas, seconds: float = _SECONDS_BETWEEN_LOOKS) -> None:
        self._board, self._probe, self._replicas, self._seconds = board, probe, replicas, seconds
        self._name = secrets.token_hex(8)
        self._missed: dict[str, int] = {}
        """By the name of a server's start: probes in a row that were not answered."""

    async def run(self) -> None:
        """Work until cancelled; a database that is away is waited for."""
        while True:
            try:
                if await self._board.lead(self._name, _SECONDS_OF_A_LEASE):
                    await self.step()
            except StoreUnavailable as error:
                log.warning("the database is away, nothing is moved: %s", error)
            except Exception:
                log.exception("nothing could be moved")
            await asyncio.sleep(self._seconds)

    async def step(self) -> dict[str, LearnerPlacement]:
        """Look and place once; gives what should be."""
        servers = await self._living()
        learners = await self._board.learners()
        wanted = {placement.uid: placement for placement in await self._board.placements()}
        now = [_standing(learner, wanted.get(learner.uid), servers) for learner in learners]
        replicas = {learner.uid: self._replicas(learner.name) for learner in learners}
        placed = place(now, {server.node for server in servers}, replicas)
        if servers:
            placed = _a_few_at_a_time(placed, {standing.uid: standing for standing in now})
            changed = [placement for uid, placement in placed.items() if wanted.get(uid) != placement]
            gone = [uid for uid in wanted if uid not in placed]
            if changed or gone:
                await self._board.want(changed, gone)
        return placed

    async def _living(self) -> list[Server]:
        """The servers that answer, or did a moment ago; those that are gone leave the board."""
        servers = await self._board.servers()
        answers = await asyncio.gather(*(self._probe(server) for server in servers))
        self._missed = {
            server.owner: 0 if answered else self._missed.get(server.owner, 0) + 1
            for server, answered in zip(servers, answers, strict=True)
        }
        gone = [server for server in servers if self._missed[server.owner] >= _MISSED_PROBES]
        for server in gone:
            log.warning("server %s does not answer: its learners go on elsewhere", server.node)
            await self._board.leave(server)
        return [server for server in servers if server not in gone]


def _standing(learner: OwnedLearner, wanted: LearnerPlacement | None, servers: list[Server]) -> LearnerPlacement:
    """A learner where it is; one whose owner is gone is where it should be, or nowhere."""
    node = next((server.node for server in servers if server.owner == learner.owner), None)
    if node is None and wanted is not None and any(server.node == wanted.owner for server in servers):
        node = wanted.owner
    return LearnerPlacement(learner.uid, node, wanted.followers if wanted is not None else ())


def _a_few_at_a_time(
    placed: dict[str, LearnerPlacement], now: dict[str, LearnerPlacement]
) -> dict[str, LearnerPlacement]:
    """Let most of those that would leave a living server stay for now."""
    moving, chosen = 0, {}
    for uid, placement in placed.items():
        standing = now[uid]
        if standing.owner is not None and standing.owner != placement.owner:
            moving += 1
            if moving > _MOVES_AT_ONCE:
                followers = tuple(node for node in placement.followers if node != standing.owner)
                placement = replace(placement, owner=standing.owner, followers=followers)
        chosen[uid] = placement
    return chosen
