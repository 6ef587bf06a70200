"""A miniature run from images on disk to `result.json` and `report.html`."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from benchmarks.paper import __main__ as paper_command
from benchmarks.paper import run as paper
from benchmarks.paper.options import PaperOptions
from benchmarks.paper.scenario import Blurry
from benchmarks.paper.tables import paper_tables
from benchmarks.search import run as search

SHORT = {"training.phases": 1, "training.epochs": 1, "training.min_steps": 0, "training.batch_size": 32}
SMALL = {
    **SHORT,
    "architecture.dictionary.atoms": 6,
    "architecture.dictionary.patches": 300,
    "metric.random_features": 30,
}
"""The same for a learner of images with the default preset."""


class Checker(HTMLParser):
    """Collects what a page would load, and whether its tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def output(mnist_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    arguments = ["--dataset", "mnist", "--data-root", str(mnist_root), "--seeds", "0,1", "--output", str(folder)]
    for key, value in SHORT.items():
        arguments += ["--set", f"{key}={value}"]
    outcome = CliRunner().invoke(paper_command.app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "88.0 ± 1.3" in outcome.output and "SHARP here, paper preset" in outcome.output
    return folder


@pytest.fixture(scope="module")
def result(output: Path) -> dict[str, Any]:
    return json.loads((output / "result.json").read_text())  # type: ignore[no-any-return]


def test_the_result_tells_everything_a_table_needs(result: dict[str, Any]) -> None:
    assert result["seeds"] == [0, 1] and len(result["runs"]) == 2
    assert 0.0 <= result["average_accuracy"] <= 1.0
    assert len(result["accuracy_after_episode"]) == len(result["seconds_per_episode"]) == 5
    assert all(seconds > 0 for seconds in result["seconds_per_episode"])
    assert result["settings"]["engine"]["training"]["batch_size"] == 32
    assert result["version"] and result["versions"]["torch"] and result["machine"]["cores"]
    assert result["published"]["SHARP"] == {"mean": 88.0, "std": 1.3}
    assert any("120 images" in remark for remark in result["remarks"])


def test_means_and_deviations_are_those_of_the_runs(result: dict[str, Any]) -> None:
    for name in ("average_accuracy", "forgetting", "backward_transfer", "accuracy_after_episode", "ltm_bytes"):
        values = [run[name] for run in result["runs"]]
        np.testing.assert_allclose(result[name], np.mean(values, axis=0))
        np.testing.assert_allclose(result["std"][name], np.std(values, axis=0))


def test_each_run_is_consistent_in_itself(result: dict[str, Any]) -> None:
    for run in result["runs"]:
        matrix = run["accuracy_matrix"]
        assert all(value is None for i, row in enumerate(matrix) for value in row[i + 1 :])
        assert run["accuracy_after_episode"][-1] == pytest.approx(run["average_accuracy"])
        assert np.mean(matrix[-1]) == pytest.approx(run["average_accuracy"])  # two classes in each episode
        assert np.sum(run["confusion_matrix"]) == 40
        assert run["sequence"] == run["new_classes"] == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]
        assert run["examples_per_episode"] == [24] * 5 and run["unlearned_examples"] == 0


def test_memory_stays_within_the_papers_bytes(result: dict[str, Any]) -> None:
    for run in result["runs"]:
        assert run["stm_budget_bytes"] == 50 * 784
        assert max(run["stm_bytes"]) <= 50 * 784


def test_units_by_rank_add_up_to_each_layer(result: dict[str, Any]) -> None:
    for run in result["runs"]:
        for episode in run["units_by_rank"]:
            assert [sum(ranks.values()) for ranks in episode.values()] == [16, 16, 500, 500]


def test_the_report_is_one_page_that_loads_nothing(output: Path) -> None:
    page = (output / "report.html").read_text()
    checker = Checker()
    checker.feed(page)
    assert checker.loaded == [] and checker.open == []
    assert page.count("<svg") == 9  # accuracy, two matrices, four layers, time, memory
    assert "url(" not in page and "@import" not in page and "nan" not in page
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    for word in ("the paper, at the end: 88.0 %", "Confusion matrix", "Units by rank", "training.batch_size"):
        assert word in page


def test_the_same_seed_gives_the_same_figures(mnist_root: Path, result: dict[str, Any]) -> None:
    again = paper.run(PaperOptions("mnist", mnist_root, seeds=(1,), settings=SHORT))
    assert again.runs[0].confusion.tolist() == result["runs"][1]["confusion_matrix"]


def test_a_folder_runs_blurry_with_validation_and_no_figures_beside(png_root: Path, tmp_path: Path) -> None:
    options = PaperOptions(
        "folder", png_root, seeds=(0, 1), preset="default", settings=SMALL, validate=True, blurry=Blurry(2, 0.5)
    )
    result = paper.run(options, output=tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert result.published == {} and written["data"]["test_images"] is None
    assert [len(run["sequence"]) for run in written["runs"]] == [len(run.episodes) for run in result.runs]
    assert np.sum(written["runs"][0]["confusion_matrix"]) == 8  # two of twelve images of each class
    assert "By class" in (tmp_path / "report.html").read_text()
    Console(file=io.StringIO()).print(*paper_tables(result))


def test_found_boundaries_learn_the_whole_stream(tmp_path: Path, write_folders: Any) -> None:
    from benchmarks.datasets import synthetic

    write_folders(tmp_path / "images", synthetic.images(4, 60, (1, 8, 8)), ["a", "b", "c", "d"])
    small = {**SMALL, "stream.min_examples": 32, "stream.window": 16, "stream.max_examples": 1000}
    options = PaperOptions(
        "folder",
        tmp_path / "images",
        seeds=(0,),
        preset="default",
        settings=small,
        boundaries="automatic",
    )
    result = paper.run(options, output=tmp_path / "out")
    run = result.runs[0]
    assert len(run.given) == 2 and len(run.episodes) == 2
    assert sum(e.examples for e in run.episodes) == run.training_examples == 200
    assert [e.new_classes for e in run.episodes] == [(0, 1), (2, 3)]
    given_boundaries = paper.run(replace(options, boundaries="explicit"))
    given = given_boundaries.runs[0].figures()["average_accuracy"]
    assert run.accuracy_if_given == given and given_boundaries.if_given() is None
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert written["average_accuracy_if_given"] == written["runs"][0]["average_accuracy_if_given"] == given
    assert f"boundaries given, at the end: {100 * given:.1f} %" in (tmp_path / "out" / "report.html").read_text()
    printed = io.StringIO()
    Console(file=printed).print(*paper_tables(result))
    assert "the same, boundaries given" in printed.getvalue()


def test_checks_run_on_the_trained_learner_where_asked_for(png_root: Path) -> None:
    result = paper.run(
        PaperOptions(
            "folder", png_root, seeds=(0,), preset="default", settings=SMALL, check=True, classes_per_episode=4
        )
    )
    checks = result.runs[0].checks
    assert checks and all(wrong is None for _, wrong in checks)


def test_a_wrong_option_ends_the_command_with_one_line(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(
        paper_command.app, ["--dataset", "mnist", "--data-root", str(tmp_path), "--seeds", "a"]
    )
    assert outcome.exit_code == 2 and "Traceback" not in outcome.output


def test_a_search_appends_each_run_once_and_reads_no_test_set(png_root: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(png_root / "train")
    settings = tmp_path / "try.toml"
    short = ", ".join(f'"{key}" = {value}' for key, value in SMALL.items())
    settings.write_text(
        f"""
        datasets = ["folder"]
        seeds = [0, 1]
        [[settings]]
        name = "one"
        set = {{ {short} }}
        [[settings]]
        name = "two"
        set = {{ {short}, "prediction.neighbours" = 3 }}
        """
    )
    trials = search.read_trials(settings, tmp_path)
    assert [(t.name, t.options.seeds) for t in trials] == [("one", (0,)), ("two", (0,)), ("one", (1,)), ("two", (1,))]
    assert all(t.options.validate for t in trials) and len({t.key for t in trials}) == 4
    path = tmp_path / "found.jsonl"
    quiet = Console(quiet=True)
    assert len(search.search(trials[:3], path, quiet)) == 3
    path.write_text(path.read_text() + '{"cut off')
    with path.open("a") as file:
        file.write("\n")
    lines = search.search(trials, path, quiet)
    assert len(lines) == len(search.read_lines(path)) == 4
    assert all(0.0 <= line["average_accuracy"] <= 1.0 and not math.isnan(line["seconds"]) for line in lines)
    text = io.StringIO()
    Console(file=text, width=100).print(search.summary(lines, trials))
    assert "one" in text.getvalue() and "(2)" in text.getvalue()


def test_a_search_names_what_it_does_not_know(tmp_path: Path) -> None:
    settings = tmp_path / "try.json"
    for wrong, named in (
        ('{"settings": [{"name": "a", "sets": {}}]}', "'sets'"),
        ('{"setings": []}', "'setings'"),
        ('{"settings": [{"name": "a"}, {"name": "a"}]}', "all different"),
        ('{"settings": [{"name": "a", "fraction": "half"}]}', "'a'"),
        ("{", "cannot read"),
    ):
        settings.write_text(wrong)
        with pytest.raises(OptionError, match=named):
            search.read_trials(settings, tmp_path)
