"""The benchmark of slices measures both sides; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.serving import slices

pytest.importorskip("sharp_server")


def test_both_sides_are_measured_printed_and_saved(tmp_path: Path) -> None:
    file = tmp_path / "slices.json"
    outcome = CliRunner().invoke(slices.app, ["--tiny", "--output", str(file)], env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    for side in ("slices", "whole_episodes"):
        assert min(seconds for name, seconds in found[side].items() if name != "small_added_median") > 0
    assert found["ratios"]["small_median"] == found["slices"]["small_median"] / found["whole_episodes"]["small_median"]
    assert "small episode behind a large one" in outcome.output
