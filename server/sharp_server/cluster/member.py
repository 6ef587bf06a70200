"""A server as a member of its cluster: says that it is there, does what the coordinator wants, passes calls on.

Every half second, and whenever the database says that an owner changed, it looks what it should own and follow, and
what it does own. When the database is away it goes on answering predictions with what it has, and looks again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any

from sharp_server.cluster.cached_files import CachedFiles
from sharp_server.cluster.directory import Directory
from sharp_server.cluster.followed_learners import FollowedLearners
from sharp_server.cluster.forwarding import Forwarder
from sharp_server.cluster.http_passing import PassingApp, make_client
from sharp_server.cluster.owned_learners import OwnedLearners
from sharp_server.cluster.peers import Peers
from sharp_server.config.model import ServerConfig
from sharp_server.context import ServerContext
from sharp_server.errors import RpcError, StoreUnavailable
from sharp_server.storage.board import OwnedLearner, Server
from sharp_server.storage.data_folder import DataFolder

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_BETWEEN_SYNCS = 0.2
"""Between two looks at what is new of the learners that are followed: one query, for all of them."""
_REASONS_TO_LOOK = ("lost", "owner", "deleted")
"""Changes that may have to do with who should own what: versions and lessons of every learner anywhere are none."""
_SECONDS_BETWEEN_SWEEPS = 10.0
_SECONDS_TO_LEAVE = 3.0
_SECONDS_TO_TAKE_UP = 5.0
"""For which a learner that was given up is still answered for, by what was known then."""


def join(config: ServerConfig, folder: DataFolder) -> tuple[ServerContext, ClusterMember]:
    """The parts of a server that is in a cluster. The database knows this start of it by a name of its own."""
    owner = f"{config.cluster.node}/{secrets.token_hex(6)}"
    context = ServerContext(config, folder, owner)
    member = ClusterMember(config, context, owner)
    context.prediction.ask_also(member.forwarder.predict)
    context.admin.list_also(member.forwarder.others)
    return context, member


class ClusterMember:
    """Belongs to the event loop."""

    def __init__(self, config: ServerConfig, context: ServerContext, owner: str) -> None:
        self._config, self._owner = config, owner
        self._peers = Peers(config.trust, config.cluster)
        self._parts = parts = context.cluster_parts()
        self._board = parts.board
        self._directory = Directory(self._board.places)
        self.forwarder = Forwarder(parts.registry, parts.readers, self._directory, self._peers)
        self._client = make_client(config.trust, config.cluster)
        self._owned = OwnedLearners(parts)
        self._followed = FollowedLearners(parts)
        self._cached_files = CachedFiles(parts, self._owned, self._followed)
        self._server: Server | None = None
        self._follow: set[str] = set()
        """Learners that this server should follow, unless it owns them."""
        self._left: dict[str, float] = {}
        """Learners that are another server's now, and since when."""
        self._away = False
        """Whether the database could not be asked last."""
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._moving: dict[str, asyncio.Task[None]] = {}
        """Learners that are being taken or given up, by uid."""

    async def start(self, port: int, http_port: int) -> None:
        """Say that this server is there, and begin to do what is wanted."""
        host = self._config.cluster.advertise or self._config.listen.host
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        scheme = "https" if self._config.trust.certificate else "http"
        http = f"{scheme}://{host}:{http_port}" if http_port else ""
        self._server = Server(self._config.cluster.node, self._owner, f"{host}:{port}", http)
        self.forwarder.address = self._server.address
        await self._board.open()
        await self._board.enter(self._server)
        await self._directory.refresh()
        work = (self._run(), self._listen(), self._keep_following(), self._sweep_cache())
        self._tasks = [asyncio.create_task(task) for task in work]

    def http_app(self, app: Any) -> Any:
        """The app of the HTTP port, which passes on what is another server's."""
        return PassingApp(app, self._parts.registry, self._parts.readers, self._directory, self._client)

    async def stop(self) -> None:
        """Take and give up nothing more."""
        for task in (*self._tasks, *self._moving.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._moving.values(), return_exceptions=True)

    async def leave(self) -> None:
        """Be gone, after the last write: from now on others may claim what this server owned."""
        if self._server is not None:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(_SECONDS_TO_LEAVE):
                    await self._board.leave(self._server)
        await self._client.aclose()
        await self._peers.close()
        await self._board.close()

    # ---- what changes -----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear what any server changes: an item is a reason to look, and no more than that."""
        async for change in self._parts.storage.changes():
            if change.what == "lost":
                self._followed.all_changed()
            elif change.what == "deleted":
                self._followed.drop(change.uid)
            elif change.what != "lesson" or not change.number:
                self._followed.changed(change.uid)
            if change.what in _REASONS_TO_LOOK:
                self._look.set()

    async def _run(self) -> None:
        while True:
            self._look.clear()
            try:
                await self._step()
                if self._away:
                    log.info("the database is there again")
                self._away = False
            except StoreUnavailable as error:
                if not self._away:
                    log.warning("the database is away; predictions go on: %s", error)
                self._away = True
            except Exception:
                log.exception("what this server should do could not be done")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), _SECONDS_BETWEEN_LOOKS)

    async def _keep_following(self) -> None:
        """Beside everything else: loading a version takes its time, and nobody may wait for it to be owned."""
        while True:
            try:
                own = {served.uid for served in self._parts.registry}
                await self._followed.follow(self._follow - own)
            except StoreUnavailable:
                log.debug("the database is away: what is followed stays as it is")
            except Exception:
                log.exception("learners could not be followed")
            await asyncio.sleep(_SECONDS_BETWEEN_SYNCS)

    async def _sweep_cache(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_SWEEPS)
            try:
                await self._cached_files.sweep()
            except Exception:
                log.exception("files of other servers' learners could not be deleted")

    async def _step(self) -> None:
        """Look once, and do what is wanted."""
        server = self._server
        assert server is not None
        servers = {found.owner: found for found in await self._board.servers()}
        if server.owner not in servers:  # others took it for dead: a link was cut, and is there again
            await self._board.enter(server)
        await self._directory.refresh()
        learners = await self._board.learners()
        wanted = {placement.uid: placement for placement in await self._board.placements()}
        self._lose({learner.uid for learner in learners if learner.owner == server.owner})
        for learner in learners:
            placement = wanted.get(learner.uid)
            mine = placement is None or placement.owner == server.node
            if learner.owner == server.owner:
                self._keep_or_leave(learner, keep=mine)
            elif placement is not None and mine and learner.owner not in servers:
                self._begin(learner.uid, self._owned.take(learner, server))
        self._follow = {uid for uid, placement in wanted.items() if server.node in placement.followers}
        self._drop_leftovers(self._follow, server)

    def _drop_leftovers(self, follow: set[str], server: Server) -> None:
        """What was given up is answered for until its new owner has had the time to take it up."""
        now, left = time.monotonic(), self._left
        for served in self._parts.readers.followed_only():
            place = self._directory.find(served.name)
            elsewhere = place is None or (place.owner not in ("", server.owner))
            if served.uid in follow or not elsewhere:
                left.pop(served.uid, None)
            elif now - left.setdefault(served.uid, now) > _SECONDS_TO_TAKE_UP:
                del left[served.uid]
                self._parts.readers.remove(served)
                self._parts.batcher.forget(served.id)

    def _keep_or_leave(self, learner: OwnedLearner, keep: bool) -> None:
        served = self._parts.registry.find(learner.name)
        if served is None:
            if self._owned.is_untaken(learner.uid) and self._server is not None:
                self._begin(learner.uid, self._owned.take(learner, self._server))
        elif not keep and served.uid == learner.uid:
            self._begin(learner.uid, self._owned.give_up(served, learner.epoch))

    def _lose(self, own: set[str]) -> None:
        """Let go of what the database says is another's."""
        for served in self._parts.registry:
            if served.uid not in own:
                self._begin(served.uid, self._owned.lose(served, self._owner))

    def _begin(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        """Take or give up a learner beside others; one thing at a time for each."""
        if uid in self._moving:
            work.close()
            return
        self._moving[uid] = asyncio.create_task(self._carry_through(uid, work))

    async def _carry_through(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RpcError as refusal:  # another server was faster, or a call is changing the learner
            log.info("a learner could not be moved yet: %s: %s", refusal.reason, refusal.message)
        except StoreUnavailable:
            log.warning("a learner could not be moved: the database is away")
        except Exception:
            log.exception("a learner could not be moved")
        finally:
            self._moving.pop(uid, None)
            self._look.set()
