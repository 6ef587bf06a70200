"""Figures of the cluster: what is printed, what is kept, and what the documents make of it."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.cluster.__main__ import ClusterFigures, tables
from benchmarks.cluster.followers import Asked, Followers
from benchmarks.cluster.fronts import Alone, Cost
from benchmarks.cluster.options import ClusterOptions
from benchmarks.errors import BenchmarkError
from benchmarks.reporting import cluster_tables
from benchmarks.serving.comparison import Measured, Throughput


def _throughput(name: str, ratio: float) -> Throughput:
    rate = Measured(1000.0, 0.001)
    return Throughput(name, "requests/s", "the other", Measured(1000.0 * ratio, 0.001), rate, ratio, 1.0, 0.9)


@pytest.fixture
def figures() -> ClusterFigures:
    one = Asked([100.0, 110.0, 90.0], [0.010] * 3, [0.020] * 3)
    two = Asked([190.0, 220.0, 180.0], [0.010] * 3, [0.020] * 3)
    cost = Cost("start of an empty server", "s", 2.0, 1.9, 1.05, 1.05)
    return ClusterFigures(
        Followers(one, two, 64, 4),
        _throughput("Learn", 0.5),
        _throughput("asked", 0.97),
        Alone("abc", cost, cost, _throughput("asked", 1.01)),
    )


def test_the_ratio_of_followers_is_the_median_of_the_rounds(figures: ClusterFigures) -> None:
    assert figures.followers is not None
    assert figures.followers.ratio == 2.0


def test_figures_are_printed_kept_and_told_in_the_documents(figures: ClusterFigures) -> None:
    console = Console(file=StringIO(), width=200)
    console.print(*tables(figures))
    assert isinstance(console.file, StringIO)
    assert "2.00" in console.file.getvalue()
    kept = json.loads(json.dumps(figures.to_dict()))
    text = cluster_tables.figures([kept])
    for found in ("2.00 of one", "0.50 of the other", "0.97 of the other", "1.05 of abc"):
        assert found in text


def test_parts_that_were_not_measured_are_left_out() -> None:
    assert cluster_tables.figures([json.loads(json.dumps(ClusterFigures().to_dict()))]) == ""
    assert cluster_tables.deaths([]) == cluster_tables.simulation([]) == ""


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(BenchmarkError):
        ClusterOptions(parts=("everything",))  # type: ignore[arg-type]
