"""A keeper keeps one server running: started again when it ends, taken up again by the next keeper."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

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


def test_a_keeper_that_never_started_a_server_ends_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    Keeper("node", {}, tmp_path).stop()
    assert not killed


def test_a_server_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(_: Keeper) -> int:
        tries.append(1)
        raise OSError("no more processes")

    monkeypatch.setattr(Keeper, "_launch", fail)
    monkeypatch.setattr("sharp_server.cluster.keeper._FIRST_PAUSE", 0.01)
    keeper = Keeper("node", {}, tmp_path)
    keeper.start()
    try:
        until(lambda: len(tries) > 1, 30, "another try")
    finally:
        keeper.stop()
