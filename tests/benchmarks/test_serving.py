"""The serving benchmark measures what it says; its figures are not judged here."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from benchmarks.serving import __main__ as command
from benchmarks.serving.background import in_background
from benchmarks.serving.comparison import Measured, in_turns
from benchmarks.serving.latency import Latencies, Latency
from benchmarks.serving.options import ServingOptions
from devtools.browser import CHROMIUM

pytest.importorskip("sharp_server")


def test_every_part_is_measured_printed_and_saved(tmp_path: Path) -> None:
    file = tmp_path / "serving.json"
    outcome = CliRunner().invoke(command.app, ["--tiny", "--output", str(file)], env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    assert [row["target"] for row in found["throughput"]] == [0.6, 0.7, 0.6, 0.4]
    assert all(row["ratio"] > 0 and row["rate"] > 0 for row in found["throughput"])
    states = {row["name"]: row for row in found["latency"]["states"]}
    assert states["while learning"]["requests"] > 0 and states["while learning"]["p99_ratio"] > 0
    assert states["while learning"]["trained_share"] > 0 and states["during version swaps"]["requests"] > 0
    taught = found["teaching"]
    assert (taught["classes"], taught["target"]) == (100, 1.2)
    assert taught["prediction_p99_ratio"] > 0 and taught["floor_p99_ratio"] > 0 and taught["p50_ratio_to_write"] > 0
    assert [call["calls"] for call in taught["calls"][:2]] == [10, 10] and taught["calls"][2]["calls"] > 0
    assert taught["flood_p99_ratio"] > 0 and [state["requests"] > 0 for state in taught["predictions"]] == [True] * 4
    watched = found["pages"]
    assert (watched["pages"], watched["target"]) == (10, 1.1) and watched["states_read"] >= 10
    assert [state.get("p99_ratio", 0) > 0 for state in watched["states"]] == [False, True, False, True]
    assert all(state["requests"] > 0 for state in watched["states"])
    for painted in watched["paints"]:  # none where there is no browser
        assert 0 < painted["first_paint_ms"] <= painted["shown_ms"] + 1000 and 0 < painted["page_bytes"] < 300_000
    assert len(watched["paints"]) == (2 if CHROMIUM is not None else 0)
    assert found["failures"] == 0 and found["settings"]["full_sizes"] is False
    for words in ("half of the idle maximum", "ours beside", "100 classes known", "failed requests: 0"):
        assert words in outcome.output


def test_the_two_sides_take_turns_in_beginning() -> None:
    calls: list[str] = []

    def side(name: str, rate: float) -> Measured:
        calls.append(name)
        return Measured(rate, 1 / rate)

    ours, ceiling, ratio, cpu_ratio = in_turns(lambda: side("a", 6.0), lambda: side("b", 10.0), rounds=3)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert (ours.rate, ceiling.rate, ratio) == (6.0, 10.0, 0.6) and cpu_ratio == pytest.approx(0.6)


def test_work_beside_a_measurement_ends_with_it_also_where_the_measurement_fails() -> None:
    ended = []

    def work(stop: threading.Event) -> None:
        ended.append(stop.wait(60))

    with pytest.raises(OptionError), in_background(work):
        raise OptionError("failed")
    assert ended == [True]


def test_a_failed_request_counts_and_has_no_latency() -> None:
    state = Latency("idle")
    state.add({"latencies": [0.001] * 9, "failures": {"UNAVAILABLE": 2}, "at_once": True})
    assert (state.requests, state.failures) == (11, 2) and state.p99 == [pytest.approx(0.001)]


def test_a_load_generator_that_had_to_wait_once_is_told() -> None:
    state = Latency("made up")
    for at_once in (True, False, True):
        state.add({"latencies": [0.001], "failures": {}, "at_once": at_once})
    assert state.to_dict()["load_at_once"] is False


def test_latency_is_compared_with_the_idle_round_beside_it() -> None:
    found = Latencies(rate=100.0)
    found.idle.p50, found.idle.p99 = [1.0, 2.0, 1.0], [2.0, 8.0, 2.0]
    found.learning.p50, found.learning.p99 = [1.0, 2.0, 3.0], [3.0, 12.0, 2.0]
    assert found.learning.against(found.idle) == (1.0, 1.5)


@pytest.mark.parametrize(("options", "value"), [({"seconds": 0.0}, "0.0"), ({"parts": ("sleep",)}, "'sleep'")])
def test_an_option_that_cannot_be_is_named(options: dict[str, object], value: str) -> None:
    with pytest.raises(OptionError, match=value):
        ServingOptions(**options)  # type: ignore[arg-type]
