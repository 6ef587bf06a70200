"""Ten seconds of the load run: nothing fails, everyone stays connected, and every figure is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from benchmarks.load import __main__ as command
from benchmarks.load.run import LoadOptions, LoadResult
from benchmarks.memory import Trace


def test_a_short_load_fails_nothing_and_keeps_five_hundred_connections(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    words = ["--tiny", "--minutes", "0.17", "--connections", "500", "--output", str(file)]
    outcome = CliRunner().invoke(command.app, words, env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    assert found["failures"] == [] and set(found["failed_by_code"]) <= {"RESOURCE_EXHAUSTED"}
    assert found["crowd"]["still_connected"] == 500 and found["crowd"]["seen_by_the_system"] >= 500
    assert found["requests"] > 0 and 0 < found["p50_seconds"] <= found["p99_seconds"]
    assert found["rate"] == pytest.approx(0.8 * found["capacity"])
    assert {"episodes learned", "producers that left in mid-episode", "snapshots", "restarts of apps"} == set(
        found["company"]
    )
    assert found["memory"]["front"]["samples"] >= 3 and found["memory"]["trainer"]["samples"] >= 3
    assert "nothing failed" in outcome.output


def test_what_failed_is_told_and_what_was_refused_at_a_bound_is_not_a_failure() -> None:
    result = LoadResult(LoadOptions(connections=2), still_connected=2, exit_code=0)
    result.codes = Counter({"RESOURCE_EXHAUSTED": 7})
    assert result.failures == []
    result.codes["UNAVAILABLE"] = 1
    result.company_failures = {"teach: StreamLostError": 2}
    result.still_connected, result.exit_code = 1, -9
    assert len(result.failures) == 4


def test_memory_that_grows_is_seen_and_the_warm_up_is_not() -> None:
    steady, growing = Trace(), Trace()
    for minute in range(20):
        steady.add(minute, 50_000_000 if minute < 3 else 400_000_000)
        growing.add(minute, 100_000_000 + 5_000_000 * minute)
    assert steady.slope == pytest.approx(0.0, abs=1e-6) and steady.growth == 0.0
    assert growing.slope == pytest.approx(5.0) and growing.growth > 50
    assert Trace().slope is None and Trace().growth == 0.0


@pytest.mark.parametrize("options", [{"minutes": 0.0}, {"connections": 0}, {"slice_seconds": 0.0}], ids=str)
def test_an_option_that_cannot_be_is_named(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        LoadOptions(**options)  # type: ignore[arg-type]
