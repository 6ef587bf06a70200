"""The proof: its parts are run, resumed and left out, and its page hides no miss."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reliability.proof import __main__ as command
from reliability.proof.page import page
from reliability.proof.parts import PARTS, Part

_FACTS = {"versions": {"commit": "abc"}, "machine": {"cpu": "X", "cores": 2, "threads": 1, "system": "Linux"}}
_PARTS = {part.name: part for part in PARTS}


def _simulated(**more: Any) -> dict[str, Any]:
    return {**_FACTS, "schedules": 2000, "failed": {}, **more}


def test_a_figure_that_reaches_its_goal_is_plain_and_a_miss_is_bold() -> None:
    text = page([(_PARTS["simulation"], _simulated(failed={"7": ["a lesson was lost"]}))], False, Path("results"))
    assert "| simulated orders of events | 2,000 | at least 2,000 |" in text
    assert "| orders in which something did not hold | **1** | none |" in text
    assert "Commit abc; X, 2 cores" in text
    fewer = page([(_PARTS["simulation"], _simulated(schedules=1999))], False, Path("results"))
    assert "| simulated orders of events | **1,999** | at least 2,000 |" in fewer


def test_a_slow_recovery_and_an_operation_that_never_came_are_misses() -> None:
    result = {**_FACTS, "survived": 1000, "violations": {}, "slowest_recovery": 10.1, "operations": {"undo": 3}}
    text = page([(_PARTS["kills"], result)], False, Path("results"))
    assert "**10.1 s**" in text and "**3 undo**" in text and "| kills survived | 1,000 |" in text


def test_memory_whose_slope_lies_above_zero_is_a_miss() -> None:
    flat = {"slope_mb": 0.1, "slope_interval_mb": [-0.1, 0.3]}
    memory = {"front": flat, "trainer": {"slope_mb": 0.2, "slope_interval_mb": [0.1, 0.3]}, "slopes_per": "minute"}
    result = {**_FACTS, "messages": 1_000_000, "failures": [], "memory": memory}
    text = page([(_PARTS["messages"], result)], False, Path("results"))
    assert "| memory of the front | +0.10 (-0.10 to +0.30) MB per minute |" in text
    assert "| memory of the trainer | **+0.20 (+0.10 to +0.30) MB per minute** |" in text


@pytest.mark.parametrize("result", [None, {**_FACTS, "older": True}])
def test_a_part_without_a_result_is_called_so(result: dict[str, Any] | None) -> None:
    assert "## Hours of load\n\n**Not run**" in page([(_PARTS["hours"], result)], False, Path("results"))


def test_a_part_is_run_once_for_a_commit_and_leaves_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    class Done:
        returncode = 0

    def run(words: list[str], **_: object) -> Done:
        ran.append(words)
        Path(words[-1]).write_text(json.dumps(_simulated()), encoding="utf-8")
        return Done()

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(command, "versions", lambda: {"commit": "abc"})
    arguments = ["--only", "simulation", "--results", str(tmp_path), "--to", str(tmp_path / "proof.md")]
    for expected in (1, 1, 2):
        again = ["--again"] if expected == 2 else []
        outcome = CliRunner().invoke(command.app, [*arguments, *again])
        assert outcome.exit_code == 0, outcome.output
        assert len(ran) == expected
    assert ran[0][1:] == [
        "-m",
        "reliability.simulation",
        "--schedules",
        "2000",
        "--output",
        f"{tmp_path}/simulation.json",
    ]
    assert "2,000" in (tmp_path / "proof.md").read_text(encoding="utf-8")


def test_the_short_form_runs_a_real_part(tmp_path: Path) -> None:
    arguments = ["--quick", "--only", "simulation", "--results", str(tmp_path), "--to", str(tmp_path / "proof.md")]
    outcome = CliRunner().invoke(command.app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert json.loads((tmp_path / "simulation.json").read_text(encoding="utf-8"))["schedules"] == 4
    assert "it shows nothing" in (tmp_path / "proof.md").read_text(encoding="utf-8")


def test_a_part_that_does_not_exist_is_refused() -> None:
    assert CliRunner().invoke(command.app, ["--only", "prayers"]).exit_code == 2


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_that_can_be_run_has_a_command_for_both_forms(part: Part) -> None:
    for quick in (False, True):
        words = part.command(quick, Path("out.json"))
        assert words[1] == "-m" and "out.json" in words and not any("{" in word for word in words)
