"""Every command line runs, reports, keeps its result and ends in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from benchmarks.errors import BenchmarkError, OptionError
from benchmarks.reporting.runner import ProgressBar, execute, new_app
from devtools.server_process import ServerProcessError


@dataclass
class Counted:
    """A result for tests."""

    number: float

    def to_dict(self) -> dict[str, Any]:
        return {"number": self.number}


def run(measure: Callable[[ProgressBar], Counted], *arguments: str) -> Result:
    app = new_app()

    @app.command()
    def command(output: Annotated[Path | None, typer.Option()] = None) -> None:
        execute(
            measure,
            lambda result: [f"the number is {result.number}"],
            output=output,
            failed=lambda result: result.number < 0,
        )

    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def test_a_result_is_shown_and_kept_and_nan_becomes_null(tmp_path: Path) -> None:
    def measure(bar: ProgressBar) -> Counted:
        bar("counting", 1, 2)
        bar("still counting", 2)
        return Counted(float("nan"))

    file = tmp_path / "folder" / "result.json"
    outcome = run(measure, "--output", str(file))
    assert outcome.exit_code == 0 and "the number is nan" in outcome.output and "written:" in outcome.output
    assert json.loads(file.read_text()) == {"number": None} and [*file.parent.iterdir()] == [file]


def test_a_broken_promise_is_exit_code_1_and_the_result_is_kept_all_the_same(tmp_path: Path) -> None:
    outcome = run(lambda _: Counted(-1.0), "--output", str(tmp_path / "result.json"))
    assert outcome.exit_code == 1 and (tmp_path / "result.json").exists()


@pytest.mark.parametrize("error", [BenchmarkError, OptionError, ServerProcessError])
def test_what_keeps_it_from_running_is_one_line_and_exit_code_2(error: type[Exception], tmp_path: Path) -> None:
    def measure(_: ProgressBar) -> Counted:
        raise error("there is [no] data")

    outcome = run(measure, "--output", str(tmp_path / "result.json"))
    assert outcome.exit_code == 2 and not (tmp_path / "result.json").exists()
    assert "cannot run: there is [no] data" in outcome.output and "Traceback" not in outcome.output
