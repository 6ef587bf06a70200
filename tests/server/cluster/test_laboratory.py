"""What the cluster run measures with, and that it leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from reliability.cluster.laboratory import Laboratory
from reliability.cluster.machines import Network, why_not
from reliability.cluster.owners import Change, OwnerLog


def _log(*changes: tuple[float, str, str]) -> OwnerLog:
    def rows(_: str) -> list[tuple[Any, ...]]:
        return []

    made = OwnerLog(rows)
    made.changes = [Change(*change) for change in changes]
    return made


def test_another_owner_is_the_first_that_is_there_and_not_the_lost_one() -> None:
    log = _log((1.0, "x", "a"), (5.0, "x", ""), (6.0, "y", "b"), (7.0, "x", "b"), (9.0, "x", "a"))
    assert log.owned_elsewhere("x", "a", since=2.0) == 7.0
    assert log.owned_elsewhere("x", "b", since=8.0) == 9.0
    assert log.owned_elsewhere("y", "b", since=2.0) is None


def test_a_gap_is_the_time_for_which_a_learner_that_moves_is_nobodys() -> None:
    log = _log((1.0, "x", "a"), (1.0, "y", "a"), (4.0, "x", ""), (4.5, "x", "b"), (6.0, "y", "b"))
    assert log.gaps(since=2.0) == [0.5, 0.0]
    assert log.gaps(since=5.0) == [0.0]


def test_what_is_waited_for_in_vain_is_named() -> None:
    with pytest.raises(TimeoutError, match="the moon"):
        Laboratory.until(object.__new__(Laboratory), lambda: False, "the moon", seconds=0.0)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_network_takes_its_machines_and_their_processes_with_it(tmp_path: Path) -> None:
    with Network() as network:
        machine = network.machine("x")
        process = machine.start(["sleep", "600"], {"PATH": "/usr/bin:/bin"}, tmp_path / "log")
        machine.cut()
        machine.reconnect()
        name = machine.name
        assert name in _listed("netns")
    assert process.wait(10) == -9
    assert name not in _listed("netns")
    assert network.address not in _listed("addr")


def _listed(what: str) -> str:
    return subprocess.run(["ip", what], capture_output=True, text=True, check=True).stdout
