"""Ten seconds of the load run: nothing fails, everyone stays connected, and every figure is there."""

from __future__ import annotations

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from benchmarks.serving.load_generator import ask_for_predictions
from reliability.load import __main__ as command
from reliability.load.result import PREDICT, LoadOptions, LoadResult, Slice
from reliability.memory import Trace


def test_a_short_load_fails_nothing_and_keeps_five_hundred_connections(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    words = ["--tiny", "--minutes", "0.1", "--connections", "500", "--output", str(file)]
    outcome = CliRunner().invoke(command.app, words, env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    assert found["failures"] == [] and found["failed_by_rpc"] == {}
    idle = found["idle_connections"]
    assert idle["still_connected"] == 500 and idle["seen_by_the_system"] >= 500
    assert found["requests"] > 0 and 0 < found["p50_seconds"] <= found["p99_seconds"]
    assert found["rate"] == pytest.approx(0.8 * found["capacity"])
    done = {"episodes learned", "snapshots taken and deleted", "restarts of apps", "labels taught", "pages opened"}
    assert set(found["background"]) == done and found["lessons"] > 3 and found["pages"] > 0
    assert {"Teach", "GET /", "GET /api/learners/measured/events"} <= set(found["calls_by_rpc"])
    for counted in (found["descriptors"], found["files"]):
        assert 0 < min(counted["first"], counted["last"]) and max(counted["first"], counted["last"]) <= counted["most"]
    (long,) = found["ten_minute_slices"]
    assert long["requests"] == sum(part["answered"] for part in found["slices"])
    assert long["p50_seconds"] == pytest.approx(found["p50_seconds"])
    assert long["p99_seconds"] == pytest.approx(found["p99_seconds"])
    assert {"Predict, load", "Predict, idle connections", "Learn, resumed", "DeleteSnapshot"} <= set(
        found["calls_by_rpc"]
    )
    assert all(0 < part["p50"] <= part["p99"] for part in found["slices"]) and len(found["slices"]) >= 3
    assert all(found["memory"][name]["samples"] >= 3 for name in ("front", "trainer", "teacher"))
    assert "nothing failed" in outcome.output


def test_what_failed_is_told_and_what_was_refused_at_a_bound_is_not_a_failure() -> None:
    result = LoadResult(LoadOptions(connections=2), still_connected=2, exit_code=0)
    result.calls.add(PREDICT, "RESOURCE_EXHAUSTED", "the queue is full", 7)
    assert result.failures == []
    result.calls.add(PREDICT, "UNAVAILABLE", "connection reset")
    result.calls.add("Learn, resumed", "StreamLostError", "gone", 2)
    result.still_connected, result.exit_code = 1, -9
    assert len(result.failures) == 4 and "Predict, load: 1 × UNAVAILABLE (connection reset)" in result.failures


def test_memory_that_grows_is_seen_and_the_warm_up_is_not() -> None:
    steady, growing = Trace(), Trace()
    for minute in range(20):
        steady.add(minute, 50_000_000 if minute < 3 else 400_000_000)
        growing.add(minute, 100_000_000 + 5_000_000 * minute)
    assert steady.slope == pytest.approx(0.0, abs=1e-6) and steady.growth == 0.0
    assert growing.slope == pytest.approx(5.0) and growing.growth > 50
    assert Trace().slope is None and Trace().growth == 0.0


def test_a_long_run_leaves_out_ten_minutes_and_a_short_one_a_share() -> None:
    for minutes, slope in ((120, 0.0), (20, 5.0)):
        trace = Trace(warm_up=10.0)
        for minute in range(minutes + 1):
            trace.add(minute, 100_000_000 + 5_000_000 * min(minute, 10))
        grown = trace.slope or 0.0
        assert grown == pytest.approx(0.0, abs=1e-6) if slope == 0.0 else grown > 0.5


def test_the_interval_of_a_slope_holds_it_and_is_wide_where_memory_grows_in_steps() -> None:
    rng = np.random.default_rng(0)
    noisy, stepping = Trace(), Trace()
    for sample in range(90):
        noisy.add(sample / 6, int(400e6 + rng.normal(0.0, 1e6)))
        stepping.add(sample / 6, 400_000_000 + 30_000_000 * (sample // 30))
    low, high = noisy.slope_interval or (1.0, -1.0)
    assert low < 0.0 < high and high - low < 1.0
    assert stepping.slope is not None and stepping.slope_interval is not None
    low, high = stepping.slope_interval
    assert 0.0 < low < stepping.slope < high and high - low > 1.0
    assert Trace([0.0, 1.0], [1, 2]).slope_interval is None


class SlowService(grpc.GenericRpcHandler):
    """Answers everything, long after it was asked."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            time.sleep(0.5)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.mark.parametrize("way", [{"rate": 100}, {"in_flight": 16}], ids=str)
def test_the_load_generator_waits_for_every_answer_and_so_cancels_nothing(way: dict[str, int]) -> None:
    server = grpc.server(ThreadPoolExecutor(64), handlers=[SlowService()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found = ask_for_predictions({"address": f"127.0.0.1:{port}", "payload": "", "seconds": 0.2, **way})
    server.stop(None).wait()
    assert found["failures"] == {} and found["seconds"] >= 0.5
    assert len(found["latencies"]) == (20 if "rate" in way else 16)


def test_the_report_shows_slices_calls_by_code_and_slopes() -> None:
    result = LoadResult(LoadOptions(minutes=10.0, connections=1), still_connected=1, exit_code=0, capacity=100.0)
    for number in range(60):
        failed = {"CANCELLED": 3} if number == 7 else {}
        result.slices.append(Slice(10.0 * number, 800, failed, 0.002, 0.001 * (number + 5), 0.4))
        held: dict[str, int | None] = {"front": 500_000_000, "trainer": 600_000_000 + 1_000_000 * number}
        result.memory.sample(number / 6, held)
    result.calls.add(PREDICT, "OK", count=48_000)
    result.calls.add(PREDICT, "CANCELLED", "Received RST_STREAM", 3)
    shown = io.StringIO()
    Console(file=shown, width=160).print(*command.report(result), sep="\n")
    lines = shown.getvalue().splitlines()
    assert sum(" min" in line and "of a core" in line for line in lines) == 20
    assert any("1.0 min" in line and "13.00" in line and "3 CANCELLED" in line for line in lines)
    assert any(line.split()[:1] == ["trainer"] and "+6.00 (+6.00 to +6.00)" in line for line in lines)
    assert any("Predict, load: 3 × CANCELLED (Received RST_STREAM)" in line for line in lines)


@pytest.mark.parametrize("options", [{"minutes": 0.0}, {"connections": 0}, {"slice_seconds": 0.0}], ids=str)
def test_an_option_that_cannot_be_is_named(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        LoadOptions(**options)  # type: ignore[arg-type]
