"""Real servers that tests take in turn: started once per pytest process, and emptied of learners for each test.

Starting a server costs seconds of processor time, most of it for importing torch twice, and most tests need only a
server without learners. What outlives a learner stays: the log, counters, corruption events, files of weights. A test
that looks at those, that damages files or that needs the end of its server has one of its own, by `serve`.
"""

from __future__ import annotations

from pathlib import Path

from sharp.v1 import learner_admin_pb2
from tests.server.running import SECONDS, Server


class ServerPool:
    """One server for each purpose and set of settings. Nobody may use one after another has taken it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[tuple[str, frozenset[tuple[str, object]]], Server] = {}

    def lend(self, purpose: str, **settings: object) -> Server:
        """A running server with these settings and without learners. Whoever killed it before does no harm."""
        key = (purpose, frozenset(settings.items()))
        if key not in self._servers:
            self._servers[key] = Server(self._folder / str(len(self._servers)), **settings)
        server = self._servers[key]
        if not server.running:
            server.start()
        request = learner_admin_pb2.ListLearnersRequest(page_size=1000)
        for learner in server.admin.ListLearners(request, timeout=SECONDS).learners:
            server.admin.DeleteLearner(learner_admin_pb2.DeleteLearnerRequest(name=learner.name), timeout=SECONDS)
        return server

    def stop(self) -> None:
        """Stop all of them."""
        for server in self._servers.values():
            if server.running:
                server.stop()
