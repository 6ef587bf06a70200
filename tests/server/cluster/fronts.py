"""Several real servers on one PostgreSQL and one folder of objects, with a coordinator in a thread: no Ray."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import psycopg

from sharp_server.cluster.coordination import coordinate
from sharp_server.config import resolve_config
from tests.postgres import database_of
from tests.server.running import Server, until


class Cluster:
    """Servers by node, and what they share."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder, self.dsn = folder, database_of(folder)
        self._settings: dict[str, object] = {
            "data__store": self.dsn,
            "data__objects": folder / "objects",
            "teaching__version_seconds": 3600,  # lessons stay beyond the version, where tests look at them
            **settings,
        }
        self.servers: dict[str, Server] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self, *nodes: str, **settings: object) -> list[Server]:
        """Start servers together, and wait until they serve."""
        for node in nodes:
            if node not in self.servers:
                self.servers[node] = Server(self.folder / node, **{**self._settings, "cluster__node": node, **settings})
            self.servers[node].start(wait=False)
        for node in nodes:
            self.servers[node].wait_until_ready()
        return [self.servers[node] for node in nodes]

    def coordinate(self) -> None:
        """Begin to coordinate."""
        flags = {"data.store": self.dsn, "data.objects": str(self.folder / "objects"), "cluster.node": "coordinator"}
        flags |= {key.replace("__", "."): str(value) for key, value in self._settings.items() if "cluster" in key}
        config = resolve_config(flags, {}).config

        async def work() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(coordinate(config))
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

        self._thread = threading.Thread(target=asyncio.run, args=(work(),), name="coordinator", daemon=True)
        self._thread.start()

    def stop_coordinating(self) -> None:
        """End the coordinator."""
        if self._thread is not None and self._task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(30)
            self._thread = None

    def close(self) -> None:
        """End everything."""
        self.stop_coordinating()
        for server in self.servers.values():
            if server.running:
                server.kill()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with psycopg.connect(self.dsn, autocommit=True) as session:
            return session.execute(query.encode(), values).fetchall()

    def owner(self, learner: str) -> str:
        """The node that owns a learner, empty if none of those that are there does."""
        found = self.rows(
            "SELECT s.node FROM learners l JOIN cluster_servers s ON s.owner = l.owner WHERE l.name = %s", learner
        )
        return str(found[0][0]) if found else ""

    def until_owned(self, learner: str, node: str, seconds: float = 60.0) -> None:
        """Wait until a server owns a learner."""
        until(lambda: self.owner(learner) == node, seconds, f"{learner} owned by {node}")
