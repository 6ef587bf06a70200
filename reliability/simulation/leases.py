"""Two servers that take a learner from each other in virtual time, while producers and teachers go on.

Both are whole servers with folders of their own, a shared journal and a shared object store. Only the owner may write:
one whose learner was taken does not know it for a while, goes on learning, teaching and publishing, and every commit of
it must be refused. Who takes what at which moment comes from a seed; taking, giving up and losing is the real code of
`sharp_server.cluster.owned_learners`. What tells members to do so (PostgreSQL's notices, the coordinator) is left out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reliability.simulation.actors import Actor, Producer, Teacher
from reliability.simulation.plan import LEARNER, Plan, make_plan
from reliability.simulation.schedule import Schedule, ScheduleResult, folder_in_memory
from reliability.simulation.server import Network, RefusedError, Server, UnavailableError
from reliability.simulation.shared_disk import SharedDisk
from reliability.simulation.world import Note, World
from sharp_server.cluster.owned_learners import OwnedLearners
from sharp_server.errors import RpcError
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.storage.board import OwnedLearner
from sharp_server.storage.board import Server as Member

_NODES = ("one", "other")
_MOVES = ("taken over", "taken over", "handed over", "owner crashes")


@dataclass(frozen=True)
class Move:
    """A learner gets another owner."""

    at: float
    kind: str
    unaware: float
    """Seconds after which the owner before hears of it."""


def make_moves(plan: Plan) -> tuple[Move, ...]:
    """The moves of a plan's seed."""
    chance = random.Random(f"leases {plan.seed}")
    moments = sorted(chance.uniform(0.0, plan.seconds) for _ in range(chance.randint(1, 5)))
    return tuple(Move(at, chance.choice(_MOVES), chance.choice((0.0, 0.5, 3.0))) for at in moments)


def make_lease_plan(seed: int) -> Plan:
    """A seed's plan, with one learner and nothing going wrong but what `make_moves` says."""
    plan = make_plan(seed)
    quiet: dict[str, Any] = {"crashes": (), "stops": (), "trainer_kills": (), "teacher_kills": (), "full_disks": ()}
    return replace(
        plan,
        learners=(LEARNER,),
        streams=tuple(stream for stream in plan.streams if stream.learner == LEARNER),
        lessons={LEARNER: plan.lessons[LEARNER]},
        operations=(),
        after=(),
        attempts=1000,
        keep=1000,
        **quiet,
    )


class TwoServers(Network):
    """Leads to a server that takes itself for the owner, as a client or a server that forwards would try them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.servers: dict[str, Server] = {}
        """By node."""

    async def there(self) -> Server:
        """Any of them; before there is a learner, any server."""
        await asyncio.sleep(self._world.loop.delay())
        serving = [server for server in self.servers.values() if server.serving]
        owning = [server for server in serving if served_by(server) is not None]
        found = owning or (serving if not self._world.disk.notes() else [])
        if not found:
            raise UnavailableError("nobody has it")
        return self._world.chance.choice(found)


def served_by(server: Server) -> ServedLearner | None:
    """The learner, if this server has it."""
    return server.parts.registry.find(LEARNER)


class _Forwarded(Actor):
    """Whom a server that has not got the learner (any more) would send on, had it a forwarder: it comes again."""

    def refused(self, error: RefusedError) -> bool:
        """Whether to come again."""
        return super().refused(error) or error.text == f"there is no learner {LEARNER!r}"


class _Producer(_Forwarded, Producer):
    pass


class _Teacher(_Forwarded, Teacher):
    pass


class LeaseSchedule(Schedule):
    """Runs one plan with its moves."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder, SharedDisk())
        folder.mkdir(parents=True)
        self.network: TwoServers = TwoServers(self.world)
        self._owned: dict[str, OwnedLearners] = {}

    async def _live(self) -> None:
        plan, world = self.plan, self.world
        for node in _NODES:
            await self._start_node(node)
        first = _Teacher(world, self.network, plan, self.records, LEARNER)
        await self._create(first, LEARNER)
        actors: list[Coroutine[Any, Any, None]] = [
            *(_Producer(world, self.network, plan, self.records, stream).work() for stream in plan.streams),
            first.work(),
        ]
        if await self._in_time(asyncio.gather(*actors, self._move_all()), "the actors were not done"):
            await self._in_time(self._rest(), "it did not come to rest")

    async def _start_node(self, node: str) -> None:
        self._lives += 1
        data = replace(
            self._config.data,
            folder=str(self.world.folder.parent / node),
            objects=str(self.world.folder.parent / "objects"),
        )
        server = Server(self.world, replace(self._config, data=data), self._lives, f"{node}/{self._lives}")
        self.network.servers[node] = server
        self._owned[node] = OwnedLearners(server.parts.cluster_parts())
        while not server.serving:
            await asyncio.sleep(0.05)

    # ---- who owns it ------------------------------------------------------------------------------------------------

    async def _move_all(self) -> None:
        loop = self.world.loop
        begun = loop.time()
        for move in make_moves(self.plan):
            await asyncio.sleep(max(0.0, begun + move.at - loop.time()))
            self.result.events[move.kind] += 1
            owner = next(node for node in _NODES if self.network.servers[node].owner == self._owner().owner)
            heir = _NODES[1 - _NODES.index(owner)]
            if move.kind == "owner crashes":
                self.network.servers[owner].crash()
                await self._start_node(owner)
                await self._take(self.world.chance.choice(_NODES))
            elif move.kind == "handed over":
                await self._hand_over(owner, heir)
            else:
                await self._take(heir)
                await asyncio.sleep(move.unaware)
                await self._lose(owner)

    def _owner(self) -> OwnedLearner:
        query = "SELECT l.id, l.uid, l.name, o.owner, o.epoch FROM learners l JOIN owners o ON o.learner = l.id"
        return OwnedLearner(*self.world.disk.connection.execute(query).fetchone())

    async def _take(self, node: str) -> None:
        server = self.network.servers[node]
        member = Member(node, server.owner, server.owner, "")
        await server.run(self._owned[node].take(self._owner(), member))

    async def _lose(self, node: str) -> None:
        server = self.network.servers[node]
        served = served_by(server)
        if served is not None:
            await server.run(self._owned[node].lose(served, server.owner))

    async def _hand_over(self, owner: str, heir: str) -> None:
        server = self.network.servers[owner]
        served = served_by(server)
        assert served is not None
        while True:
            try:
                await server.run(self._owned[owner].give_up(served, self._owner().epoch))
                break
            except RpcError:  # a call is changing it: later, as a member would
                await asyncio.sleep(0.5)
        await self._take(heir)

    async def _rest(self) -> None:
        """Until everything that arrived is part of a version of whoever owns it."""
        while True:
            await asyncio.sleep(0.5)
            server = next(s for s in self.network.servers.values() if s.owner == self._owner().owner)
            self.network.server = server
            if server.serving and served_by(server) is not None and self._rests(LEARNER):
                break
        await asyncio.sleep(2 * self._config.teaching.version_seconds + 20 * self.plan.longest_delay + 5.0)

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        for server in self.network.servers.values():
            if server.there:
                server.crash()

    def _judge(self, faults: list[str]) -> None:
        super()._judge(faults)
        disk = self.world.disk
        assert isinstance(disk, SharedDisk)
        self.result.events["commit refused"] += disk.refusals
        self.result.problems += check_owners(disk.notes())
        raw = disk.connection.execute("SELECT (SELECT count(*) FROM examples) + (SELECT count(*) FROM lesson_examples)")
        if left := raw.fetchone()[0]:
            self.result.problems.append(f"{left} raw parts are left in the journal, and are in no version")


def check_owners(notes: list[Note]) -> list[str]:
    """Whatever was committed was committed by whoever owned the learner then."""
    problems: list[str] = []
    owners: dict[str, str] = {}
    for note in notes:
        if note.kind == "claim":
            owners[note.learner] = note.what["owner"]
        elif note.writer != owners.get(note.learner):
            problems.append(f"{note.writer} wrote a {note.kind}, the owner was {owners.get(note.learner)}")
    return problems


def run_lease_schedule(seed: int) -> ScheduleResult:
    """The schedule of a seed, with two servers."""
    with folder_in_memory() as folder:
        return LeaseSchedule(make_lease_plan(seed), folder / "data").run()
