"""The runner of faults: two of them, for a moment; and that its faults are faults, and its verdict can be bad."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reliability.faults import __main__ as command
from reliability.faults.name_server import NameServer
from reliability.faults.run import FaultsResult, Outcome
from reliability.faults.shim import Shim


def _python(shim: Shim, words: str) -> str:
    """What Python says under the shim."""
    environment = {**os.environ, **shim.environment}
    done = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_disk_fails_where_it_is_told_to_and_nowhere_else(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    shim = Shim(tmp_path / "shim", data)
    write = "import pathlib; pathlib.Path({!r}).write_bytes(b'x'); print('written')"
    assert _python(shim, write.format(str(data / "a"))) == "written"
    shim.set(disk="full")
    assert "No space left" in _python(shim, write.format(str(data / "a")))
    assert _python(shim, write.format(str(other / "a"))) == "written"
    shim.set(disk="read-only")
    assert "Read-only" in _python(shim, write.format(str(data / "new"))) and not (data / "new").exists()
    assert "Read-only" in _python(shim, f"import os; os.rename({str(data / 'a')!r}, {str(data / 'b')!r})")
    shim.set()
    assert _python(shim, write.format(str(data / "new"))) == "written"


def test_the_clock_jumps_and_the_monotonic_one_does_not(tmp_path: Path) -> None:
    shim = Shim(tmp_path / "shim", tmp_path)
    asked = "import time; print(int(time.time()), int(time.monotonic()))"
    before, steady = map(int, _python(shim, asked).split())
    shim.set(clock_ahead=-7200)
    after, still_steady = map(int, _python(shim, asked).split())
    assert -7200 <= after - before <= -7000 and 0 <= still_steady - steady < 200


def test_an_fsync_takes_as_long_as_it_is_told_to(tmp_path: Path) -> None:
    shim = Shim(tmp_path / "shim", tmp_path)
    shim.set(fsync_seconds=0.3)
    words = (
        "import os, time; f = open({!r}, 'w'); a = time.monotonic(); os.fsync(f.fileno()); print(time.monotonic() - a)"
    )
    assert float(_python(shim, words.format(str(tmp_path / "file")))) >= 0.3


def test_a_name_stands_for_another_address_as_soon_as_it_is_told_to() -> None:
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05sharp\x04test\x00\x00\x01\x00\x01"
    with NameServer("127.0.0.1") as names, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        port = int(names.target(1).removeprefix("dns://127.0.0.1:").partition("/")[0])
        for address in ("127.0.0.1", "127.0.0.2"):
            names.address = address
            client.sendto(question, ("127.0.0.1", port))
            assert client.recv(512).endswith(b"\x00\x04" + socket.inet_aton(address))
        assert names.asked == 2
        assert names.answer(question.replace(b"\x00\x01\x00\x01", b"\x00\x1c\x00\x01"))[6:8] == b"\x00\x00"


def test_a_failing_disk_a_new_certificate_and_a_new_address_cost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    faults = ("full-disk", "read-only-disk", "certificate", "name")
    words = [word for fault in faults for word in ("--only", fault)]
    words += ["--seconds", "2", "--folder", str(tmp_path / "run"), "--output", str(file)]
    outcome = CliRunner().invoke(command.app, words)
    found = json.loads(file.read_text())
    assert outcome.exit_code == 0 and found["well"] is True, outcome.output
    *disks, rotated, moved = found["faults"]
    assert moved["fault"] == "name" and moved["lost"] == 0 and "nothing lost" in moved["happened"]
    for disk in disks:
        assert disk["answered"] > 0 and disk["failed"] == {} and disk["parked"] == disk["lost"] == 0
        assert disk["acknowledged"] <= 1  # one may have been on its way
    assert rotated["answered"] > 0 and rotated["acknowledged"] > 0 and rotated["lost"] == 0


@pytest.mark.parametrize("broken", [{"lost": 1}, {"wrong": 1}, {"alive": False}, {"tracebacks": 1}, {"problem": "x"}])
def test_a_broken_promise_is_told(broken: dict[str, int | bool | str]) -> None:
    good = Outcome("f", "a", 1.0, answered=3, failed={"UnavailableError": 2})
    assert FaultsResult([good]).well
    assert not FaultsResult([good, Outcome("f", "a", 1.0, **broken)]).well  # type: ignore[arg-type]
