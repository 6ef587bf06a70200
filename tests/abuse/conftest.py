"""One attacked server for all tests of hostile input, and servers that end with their test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "server"))

from benchmarks.fuzz.attack import Attacker
from benchmarks.fuzz.world import opened
from tests.server.running import Server


@pytest.fixture(scope="session")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """A server with planted learners, and someone to attack it."""
    with opened(tmp_path_factory.mktemp("attacked")) as world:
        yield Attacker(world)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers; each is ended with the test."""
    servers: list[Server] = []

    def start(folder: str = "one", **settings: Any) -> Server:
        server = Server(tmp_path / folder, **settings)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
