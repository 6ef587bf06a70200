"""`sharp benchmark` hands its options on to a clone's benchmarks, or says that it takes a clone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.syspath_prepend(str(REPOSITORY / "cli"))
    app: typer.Typer = importlib.import_module("sharp_cli.benchmark").app
    return app


@pytest.mark.parametrize("name", ["paper", "learner", "ring", "speed"])
def test_help_is_the_benchmarks_own(app: typer.Typer, name: str) -> None:
    outcome = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "120", "TERM": "dumb"})
    assert outcome.exit_code == 0 and "--data-root" in outcome.output


def test_options_reach_the_benchmark(app: typer.Typer, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["paper", "--dataset", "mnist", "--data-root", str(tmp_path / "nowhere")])
    assert outcome.exit_code == 2 and "to look for mnist in" in " ".join(outcome.output.split())


def test_without_a_clone_it_says_so(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "benchmarks", None)
    for name in [name for name in sys.modules if name.startswith("benchmarks.")]:
        monkeypatch.delitem(sys.modules, name)
    outcome = CliRunner().invoke(app, ["paper", "--dataset", "mnist"])
    assert outcome.exit_code == 2 and "run this in a clone" in " ".join(outcome.output.split())
