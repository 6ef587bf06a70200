"""One server process through its whole life: started, killed, started again on its folder, stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools import process_stats
from devtools.process_stats import children, command_line, cpu_seconds, resident_bytes
from devtools.server_process import ServerProcess, ServerProcessError, clone_environment
from sharp_client import Client


@pytest.fixture(autouse=True)
def in_a_new_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProcess, "launcher", None)


def test_a_server_is_started_killed_started_again_and_stopped(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {"trainer.niceness": 0}) as server:
        assert not server.running
        first = server.start().address
        with Client(first) as client:
            client.create_learner("kept")
        with pytest.raises(ServerProcessError, match="runs already"):
            server.start()
        front = server.memory()["front"]
        assert front is not None and front > 10_000_000 and server.http_port <= 0
        server.kill()
        assert server.exit_code == -9
        server.start()
        with Client(server.address) as client:
            assert [learner.name for learner in client.list_learners()] == ["kept"]
        assert server.stop() == 0 and server.data.is_dir()
        server.terminate()  # nothing is left to be ended
    assert server.exit_code == 0


def test_leaving_the_context_stops_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path).start() as server:
        assert server.pid == server.process.pid
    assert server.exit_code == 0 and "Traceback" not in server.log.read_text()


def test_a_server_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, {"no.such": 1})
    with pytest.raises(ServerProcessError, match=r"(?s)does not serve: .*no\.such"):
        server.start()
    assert not server.running and server.exit_code != 0


def test_a_server_that_was_never_started_has_no_process(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, pytest.raises(ServerProcessError, match="never started"):
        _ = server.pid


def test_settings_are_written_as_each_command_takes_them(tmp_path: Path) -> None:
    settings = {"trainer.retry_seconds": 0.5, "http.enabled": True}
    as_module = ServerProcess(tmp_path, settings, wrapper=["strace", "-f"]).command
    assert as_module[:2] == ["strace", "-f"] and "sharp_server" in as_module
    assert {"trainer.retry_seconds=0.5", "http.enabled=true", f"data.folder={tmp_path / 'data'}"} <= set(as_module)
    as_command = ServerProcess(tmp_path, settings, as_command=True).command
    assert as_command[as_command.index("--trainer-retry-seconds") + 1] == "0.5" and "--http-enabled" in as_command
    assert "--no-http-enabled" in ServerProcess(tmp_path, as_command=True).command


def test_settings_of_another_server_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARP_LISTEN_PORT", "1")
    environment = clone_environment({"MORE": "yes"})
    assert "SHARP_LISTEN_PORT" not in environment and environment["MORE"] == "yes"


def test_what_the_system_says_of_a_process_that_is_not_there_is_nothing() -> None:
    assert resident_bytes() == pytest.approx(resident_bytes(os.getpid()), rel=0.2)
    assert cpu_seconds(os.getpid()) > 0 and command_line(os.getpid()) and process_stats.name(os.getpid())
    gone = 2**22 + 1
    assert resident_bytes(gone) is None and children(gone) == [] and command_line(gone) == []
    assert process_stats.name(gone) == ""
    assert cpu_seconds(gone) != cpu_seconds(gone)  # NaN
