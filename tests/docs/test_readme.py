"""The documents' tables are what the results say, and the picture is there. Another test runs their code blocks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reporting import measured_tables, paper_tables, ring_tables
from benchmarks.reporting.measured_tables import BENCHMARKS, DOCUMENTS, OPTIONAL, README, TABLES

TEXT = README.read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_measured_tables_are_those_of_the_results(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert measured_tables.rendered(text, measured_tables.load()) == text, "run `make readme`"


@pytest.mark.parametrize("name", sorted(set(TABLES) - OPTIONAL))
def test_every_table_was_measured(name: str) -> None:
    assert TABLES[name](measured_tables.load()) != ""


def test_there_is_one_place_for_every_table() -> None:
    assert sorted(name for names in DOCUMENTS.values() for name in names) == sorted(TABLES)
    for document, names in DOCUMENTS.items():
        text = document.read_text(encoding="utf-8")
        for name in TABLES:
            assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == int(name in names)


def test_pictures_are_in_the_repository() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert pictures
    for picture in pictures:
        assert (measured_tables.ROOT / picture).read_text(encoding="utf-8").startswith("<svg")


def test_the_rings_picture_is_that_of_the_results() -> None:
    picture = ring_tables.picture(measured_tables.load())
    assert measured_tables.RING_PICTURE.read_text(encoding="utf-8") == picture, "run `make readme`"


def test_the_text_names_the_figures_of_the_picture() -> None:
    picture = (measured_tables.ROOT / "docs" / "images" / "learning-without-forgetting.svg").read_text(encoding="utf-8")
    label = re.search(r'aria-label="([^"]*)"', picture)
    assert label is not None
    sharp, plain = re.findall(r"[\d.]+ %", label[1])
    assert f"The demo's digits: {sharp}, the plain network {plain}." in TEXT


@pytest.fixture
def run() -> dict[str, Any]:
    run: dict[str, Any] = json.loads((measured_tables.RESULTS / "paper-mnist.json").read_text(encoding="utf-8"))
    run = {**run, "settings": {**run["settings"], "preset": "default"}}
    return {**run, "average_accuracy": 0.941, "std": {"average_accuracy": 0.004}, "seeds": [0, 1, 2]}


def test_runs_of_one_scenario_share_a_row_and_others_have_their_own(run: dict[str, Any]) -> None:
    paper = {**run, "settings": {**run["settings"], "preset": "paper"}, "average_accuracy": 0.5}
    found = {**run, "settings": {**run["settings"], "boundaries": "automatic"}, "seeds": [0]}
    half = {**run, "settings": {**run["settings"], "memory": "half"}}
    judged_otherwise = {**run, "settings": {**run["settings"], "validate": True}}
    lines = paper_tables.accuracy([run, paper, found, half, judged_otherwise]).splitlines()
    assert len(lines) == 2 + 2
    assert lines[2].startswith(
        "| MNIST | **94.1** ± 0.4 (3 seeds) | **50.0** ± 0.4 (3 seeds) | 88.0 ± 1.3 | iCaRL 85.1"
    )
    assert lines[3].startswith("| MNIST, boundaries found | **94.1** ± 0.4 (1 seed) | – |")


def varied(run: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {**run, "settings": {**run["settings"], "preset": "paper", **settings}}


def test_budgets_of_memory_stand_beside_the_whole_and_the_papers(run: dict[str, Any]) -> None:
    other = {
        "SHARP": {"mean": 85.3, "std": 0.8},
        "iCaRL": {"mean": 73.4, "std": 1.3},
        "DER": {"mean": 73.2, "std": 1.9},
    }
    half = {**varied(run, memory="half"), "published": other, "average_accuracy": 0.8}
    double = {**varied(run, memory="double", dataset="fashion-mnist", fraction=0.2), "published": {}}
    lines = paper_tables.memory([double, half, varied(run), varied(run, dataset="cifar10")]).splitlines()
    assert lines[4:] == [
        "| MNIST | half | **80.0** ± 0.4 (3 seeds) | 85.3 ± 0.8 | iCaRL 73.4 ± 1.3 |",
        "| MNIST | full | **94.1** ± 0.4 (3 seeds) | 88.0 ± 1.3 | iCaRL 85.1 ± 0.5 |",
        "| Fashion-MNIST, 0.2 of the examples | double | **94.1** ± 0.4 (3 seeds) | – | – |",
    ]


def test_every_m_has_a_row_and_the_presets_own_is_that_of_the_main_run(run: dict[str, Any]) -> None:
    runs = [varied(run, m=2), varied(run), varied(run, m=0), varied(run, m=1), varied(run, preset="default")]
    assert [line.split(" | ")[:2] for line in paper_tables.window(runs).splitlines()[4:]] == [
        ["| MNIST", "0"],
        ["| MNIST", "1"],
        ["| MNIST", "2"],
    ]
    assert paper_tables.window([varied(run)]) == ""


def test_blurry_sequences_tell_the_units_left(run: dict[str, Any]) -> None:
    ranks = [{"G1": {"0": 8, "2": 8}, "F1": {"0": 1, "3": 3}}, {"G1": {"1": 16}, "F1": {"0": 1, "3": 3}}]
    one = {"episodes_given": 6, "units_by_rank": ranks}
    other = {"episodes_given": 8, "units_by_rank": [{"G1": {"0": 20}}]}
    few = {**varied(run, blurry={"c": 3, "eta": 0.3}), "published": {}, "runs": [one, other]}
    sure = {**varied(run, blurry={"c": 2, "eta": 1.0}), "published": {}, "runs": [one]}
    lines = paper_tables.blurry([few, sure]).splitlines()
    assert lines[4] == "| MNIST | 2 | 1 | 6 | **94.1** ± 0.4 (3 seeds) | 5.0 |"
    assert lines[5] == "| MNIST | 3 | 0.3 | 6 to 8 | **94.1** ± 0.4 (3 seeds) | 52.5 |"


def test_a_pretrained_g_is_named_by_its_file(run: dict[str, Any]) -> None:
    behind = varied(run, dataset="cifar100", set={"architecture.pretrained": "/tmp/G-cifar10.safetensors"})
    assert paper_tables.pretrained([behind, run]).endswith("| CIFAR100 | G-cifar10 | **94.1** ± 0.4 (3 seeds) |")
    assert paper_tables.accuracy([behind]) == ""


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_optional_table_shows_nothing_until_it_was_measured(name: str) -> None:
    around = f"before\n<!-- {name} -->\nold\n<!-- /{name} -->\nafter"
    assert measured_tables.rendered(around, []) == f"before\n<!-- {name} -->\n<!-- /{name} -->\nafter"


def test_growth_and_snapshots_have_rows_of_their_own() -> None:
    growth = {"growth": {"episodes": 50, "cpu_ratio_last_to_third": 0.247, "target": 1.2}, "snapshot": []}
    save, load = ({"name": f"a learner: {what}", "cpu_ratio": ratio, "target": None} for what, ratio in
                  (("save", 5.72), ("load", 31.0)))  # fmt: skip
    assert measured_tables.speed([growth, {"growth": None, "snapshot": [save, load]}]).splitlines()[2:] == [
        "| growing: episode 50 | 0.25 | the third episode | at most 1.2 |",
        "| snapshot: a learner: save | 5.7 | its bytes written |  |",
        "| snapshot: a learner: load | 31.0 | its bytes read |  |",
    ]


def test_the_default_learners_speed_has_rows_of_its_own() -> None:
    whole = {"name": "MNIST, 5 episodes", "cpu_ratio": 0.712, "beside": "a dense network", "target": 1.0}
    answer = {"name": "images, batches of 64", "classes": 10, "cpu_ratio": 1.2, "target": 1.3}
    taught = {"inputs": "images", "classes": 100, "teach_ms": 3.21, "with_prediction_ms": 4.0}
    growth = {"episodes": 100, "cpu_ratio_last_to_third": 0.5, "metric_cpu_ratio_of_medians": 1.013, "target": 1.2,
              "unexplained_bytes_per_episode": 1_500_000.0}  # fmt: skip
    result = {"sequence": {"comparisons": [whole]}, "answers": [answer], "teaching": [taught], "growth": growth}
    assert measured_tables.speed([result]).splitlines()[2:] == [
        "| the default learner: MNIST, 5 episodes | 0.71 | a dense network | at most 1 |",
        "| answers: images, batches of 64, 10 classes | 1.20 | the bare operations | at most 1.3 |",
        "| teaching one example: images, 100 classes | 3.2 ms, 4.0 ms with the next prediction |  | milliseconds |",
        "| growing: episode 100 | 0.50 | the third episode | at most 1.2 |",
        "| growing: episode 100, until the metric answers | 1.01 | the third episode | at most 1.2 |",
        "| growing: the process beyond its memories | +1.50 MB | an episode | flat |",
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
    table = measured_tables.reliability([result])
    assert "| kills survived | 0 of 5 (3 × server, 2 × trainer) |" in table
    assert "answers wrong | 1 |" in table and "1,200 in 10 episodes" in table and "2.3 s" in table


def test_runs_of_the_crash_loop_add_up_by_the_store_of_their_journal() -> None:
    run = {
        "survived": 5,
        "kills": {"server": 3, "trainer": 2},
        "violations": {"nothing is lost": []},
        "examples_learned": 1200,
        "episodes": 10,
        "tensors": 40,
        "slowest_recovery": 2.345,
    }
    postgres = {**run, "options": {"store": "postgres"}}
    found = measured_tables.reliability([run, {**run, "survived": 0, "slowest_recovery": 9.0}, postgres])
    assert "| kills survived | 5 of 10 (6 × server, 4 × trainer) |" in found
    assert "2,400 in 20 episodes" in found and "| slowest recovery | 9.0 s |" in found
    assert "| kills survived, journal in PostgreSQL | 5 of 5 (3 × server, 2 × trainer) |" in found


def test_a_table_without_results_says_so(tmp_path: Path) -> None:
    assert measured_tables.load(tmp_path) == []
    assert "Not measured yet." in measured_tables.rendered(BENCHMARKS.read_text(encoding="utf-8"), [])


def test_the_headline_names_accuracy_speed_and_kills_once_each(run: dict[str, Any]) -> None:
    measured = {"learner": "sequences", "mean": {"accuracy": 0.991}, "std": {"accuracy": 0.0004}, "seeds": [0, 1, 2]}
    mnist = {**measured, "case": "mnist", "title": "MNIST, 5 × 2", "everything_at_once": 0.98}
    digits = {**measured, "case": "digits", "title": "digits, 5 × 2", "everything_at_once": None, "seeds": [0]}
    crash = {"survived": 5, "kills": {"server": 3, "trainer": 2}}
    assert measured_tables.headline([digits, run, mnist, crash]).splitlines()[2:] == [
        "| class by class, in %: MNIST, 5 × 2 | **99.1** ± 0.0 (3 seeds) "
        "| the paper's network, everything at once: 98.0 |",
        "| class by class, in %: digits, 5 × 2 | **99.1** ± 0.0 (1 seed) | – |",
        "| kills survived without loss | 5 of 5 | the same weights, bit for bit, as undisturbed |",
    ]


def test_a_load_run_tells_its_worst_slice_its_failures_and_the_slopes_of_memory() -> None:
    memory = {"last_mb": 600.4, "slope_mb": 0.25, "slope_interval_mb": [-0.1, 0.6]}
    result = {
        **{"rate": 800.0, "capacity": 1000.0, "seconds": 900.0, "requests": 720_000},
        **{"p50_seconds": 0.004, "p99_seconds": 0.02, "slices": [{"p99": 0.011}, {"p99": 0.035}]},
        **{"failures": ["Predict, load: 3 × CANCELLED"], "memory": {"front": memory, "trainer": memory}},
    }
    table = measured_tables.load_run([result])
    assert "800 of 1,000 possible" in table and "15 minutes, 720,000 requests" in table
    assert "| p99 by slice | 11.0 to 35.0 ms |" in table and "3 × CANCELLED" in table
    assert "| memory of the trainer | 600 MB, +0.25 (-0.10 to +0.60) MB per minute |" in table
