"""A keeper keeps one server running: started again when it ends, taken up again by the next keeper."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sharp_server.cluster.keeper import Keeper, is_server
from tests.postgres import database_of
from tests.server.running import until


def test_a_server_that_ends_is_started_again_and_outlives_its_keeper(tmp_path: Path) -> None:
    settings = {
        "data.store": database_of(tmp_path),
        "data.objects": str(tmp_path / "objects"),
        "listen.port": "0",
        "http.enabled": "false",
        "stop.grace_seconds": "1",
    }
    ports = tmp_path / "kept" / "ports.json"
    keeper = Keeper("node", settings, tmp_path / "kept")
    keeper.start()
    try:
        until(ports.exists, 120, "a server")
        first = keeper.state()["pid"]
        assert isinstance(first, int)
        os.kill(first, signal.SIGKILL)
        until(lambda: keeper.state()["pid"] != first and ports.exists(), 120, "another server")
        second = keeper.state()["pid"]
        other = Keeper("node", settings, tmp_path / "kept")
        other.start()
        until(lambda: other.state()["pid"], 30, "the server that runs")
        assert other.state() == {"node": "node", "pid": second, "starts": 0, "running": True}
        other._stop.set()
    finally:
        keeper.stop()
    assert isinstance(second, int)
    assert not is_server(second)
