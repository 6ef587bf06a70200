"""The README's tables are what the results say, and its picture is there. Another test runs its code blocks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reporting import measured_tables as readme

TEXT = readme.README.read_text(encoding="utf-8")


def test_the_measured_tables_are_those_of_the_results() -> None:
    assert readme.rendered(TEXT, readme.load()) == TEXT, "run `make readme`"


def test_there_is_a_place_for_every_table() -> None:
    for name in readme.TABLES:
        assert TEXT.count(f"<!-- {name} -->") == TEXT.count(f"<!-- /{name} -->") == 1


def test_pictures_are_in_the_repository() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert pictures
    for picture in pictures:
        assert (readme.ROOT / picture).read_text(encoding="utf-8").startswith("<svg")


def test_the_text_names_the_figures_of_the_picture() -> None:
    picture = (readme.ROOT / "docs" / "images" / "learning-without-forgetting.svg").read_text(encoding="utf-8")
    label = re.search(r'aria-label="([^"]*)"', picture)
    assert label is not None
    sharp, plain = re.findall(r"[\d.]+ %", label[1])
    assert f"The demo's digits: {sharp}, the plain network {plain}." in TEXT


@pytest.fixture
def run() -> dict[str, Any]:
    run: dict[str, Any] = json.loads((readme.RESULTS / "default-mnist.json").read_text(encoding="utf-8"))
    return {**run, "average_accuracy": 0.941, "std": {"average_accuracy": 0.004}, "seeds": [0, 1, 2]}


def test_runs_of_one_scenario_share_a_row_and_others_have_their_own(run: dict[str, Any]) -> None:
    paper = {**run, "settings": {**run["settings"], "preset": "paper"}, "average_accuracy": 0.5}
    half = {**run, "settings": {**run["settings"], "memory": "half"}, "seeds": [0]}
    blurry = {**run, "settings": {**run["settings"], "blurry": {"c": 3, "eta": 0.3}}, "published": {}}
    judged_otherwise = {**run, "settings": {**run["settings"], "validate": True}}
    lines = readme.accuracy([run, paper, half, blurry, judged_otherwise]).splitlines()
    assert len(lines) == 2 + 3
    assert lines[2].startswith(
        "| MNIST | **94.1** ± 0.4 (3 seeds) | **50.0** ± 0.4 (3 seeds) | 88.0 ± 1.3 | iCaRL 85.1"
    )
    assert lines[3].startswith("| MNIST, half memory | **94.1** ± 0.4 (1 seed) | – |")
    assert lines[4].startswith("| MNIST, blurry, c = 3, η = 0.3 |") and lines[4].endswith("| – | – | – |")


def test_growth_and_snapshots_have_rows_of_their_own() -> None:
    growth = {"growth": {"episodes": 50, "cpu_ratio_last_to_third": 0.247, "target": 1.2}, "snapshot": []}
    save, load = ({"name": f"a learner: {what}", "cpu_ratio": ratio, "target": None} for what, ratio in
                  (("save", 5.72), ("load", 31.0)))  # fmt: skip
    assert readme.speed([growth, {"growth": None, "snapshot": [save, load]}]).splitlines()[2:] == [
        "| growing: episode 50 | 0.25 | the third episode | at most 1.2 |",
        "| snapshot: a learner: save | 5.7 | its bytes written |  |",
        "| snapshot: a learner: load | 31.0 | its bytes read |  |",
    ]


def test_a_crash_loop_tells_what_it_survived_and_what_broke() -> None:
    result = {
        "survived": 0,
        "kills": {"server": 3, "trainer": 2},
        "violations": {"nothing is lost": ["batch 7"], "nothing is doubled": []},
        "examples_learned": 1200,
        "episodes": 10,
        "tensors": 40,
        "slowest_recovery": 2.345,
    }
    told = readme.reliability([result])
    assert "| kills survived | 0 of 5 (3 × server, 2 × trainer) |" in told
    assert "answers wrong | 1 |" in told and "1,200 in 10 episodes" in told and "2.3 s" in told


def test_a_table_without_results_says_so(tmp_path: Path) -> None:
    assert readme.load(tmp_path) == []
    assert "Not measured yet." in readme.rendered(TEXT, [])
