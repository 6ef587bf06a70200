"""What the server's tests share: the server's package on the path, and servers that end with their test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "server"))

from tests.server.running import Server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers; each is ended with the test."""
    servers: list[Server] = []

    def start(folder: str = "one", wait: bool = True, **settings: Any) -> Server:
        server = Server(tmp_path / folder, **settings)
        servers.append(server)
        return server.start(wait)

    yield start
    for server in servers:
        if server.running:
            server.kill()
