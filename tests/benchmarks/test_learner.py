"""The learner's experiments from data on disk to their files, in miniature; no accuracy is judged here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from benchmarks.learner import __main__ as command
from benchmarks.learner import corrections, experiment, few, sequences
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment, chosen, run_all
from benchmarks.learner.options import LearnerOptions
from benchmarks.reporting import learner_tables, measured_tables

SHORT: dict[str, Any] = {
    "training.phases": 1,
    "training.epochs": 1,
    "training.min_steps": 0,
    "architecture.dictionary.atoms": 6,
    "architecture.dictionary.patches": 300,
    "metric.random_features": 30,
    "stream.min_examples": 32,
    "stream.window": 16,
    "stream.max_examples": 1000,
}
"""Everything small, and episodes short enough to be found in a small stream."""


@pytest.fixture
def context(learner_root: Path, tmp_path: Path) -> Context:
    return Context(LearnerOptions(learner_root, settings=SHORT), tmp_path)


@pytest.fixture(scope="module")
def written(learner_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a command leaves that asks every group something."""
    folder = tmp_path_factory.mktemp("results")
    arguments = ["--data-root", str(learner_root), "--seeds", "0,1", "--output", str(folder)]
    for name in ("sequences/banking77", "sequences/banking77-single", "shares/banking77", "corrections/banking77",
                 "few/banking77", "novelty/banking77"):  # fmt: skip
        arguments += ["--only", name]
    for key, value in SHORT.items():
        arguments += ["--set", f"{key}={value}"]
    outcome = CliRunner().invoke(command.app, arguments, env={"COLUMNS": "200"})
    assert outcome.exit_code == 0, outcome.output
    for title in learner_tables.GROUPS:
        assert f"{title}: judged by the test sets" in outcome.output
    return {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}


def test_every_experiment_leaves_one_file_with_all_its_seeds(written: dict[str, dict[str, Any]]) -> None:
    assert sorted(written) == [
        "learner-corrections-banking77",
        "learner-few-banking77",
        "learner-novelty-banking77",
        "learner-sequences-banking77",
        "learner-sequences-banking77-single",
        "learner-shares-banking77",
    ]
    for result in written.values():
        assert result["seeds"] == [0, 1] and len(result["runs"]) == 2
        assert result["settings"]["preset"] == "default" and not result["settings"]["for_the_record"]
        assert result["versions"]["torch"] and result["machine"]["cores"]


def test_a_sequence_tells_accuracy_time_and_the_bytes_of_every_memory(written: dict[str, dict[str, Any]]) -> None:
    for name, episodes in (("banking77", 4), ("banking77-single", 22)):
        for run in written[f"learner-sequences-{name}"]["runs"]:
            assert 0.0 <= run["accuracy"] <= 1.0 and run["judged"] == 22 * 9
            assert run["episodes"] == episodes and run["examples"] == 22 * 30
            assert 0.0 < run["metric_seconds"] <= run["seconds"]
            assert run["bytes"]["semantic"] > 0
            assert run["bytes"]["all"] == sum(value for key, value in run["bytes"].items() if key != "all")


def test_experiments_that_ask_the_same_learner_agree(written: dict[str, dict[str, Any]]) -> None:
    accuracies = [run["accuracy"] for run in written["learner-sequences-banking77"]["runs"]]
    assert [run["right"] for run in written["learner-shares-banking77"]["runs"]] == pytest.approx(accuracies)
    assert [run["accuracy"] for run in written["learner-corrections-banking77"]["runs"]] == accuracies


def test_few_examples_are_told_with_what_stands_beside(written: dict[str, dict[str, Any]]) -> None:
    for run in written["learner-few-banking77"]["runs"]:
        assert len(run["classes"]["few"]) == 8 and run["classes"]["others"] == 14
        for number in ("1", "5", "20"):
            assert sorted(run[number]) == ["discriminant", "learner", "neighbours"]
            for found in run[number].values():
                assert found["overall"] == pytest.approx((8 * found["few"] + 14 * found["others"]) / 22)
        assert run["1"]["neighbours"]["few"] < run["20"]["neighbours"]["few"]


def test_corrections_are_right_at_once(written: dict[str, dict[str, Any]]) -> None:
    for run in written["learner-corrections-banking77"]["runs"]:
        assert len(run["by_class"]) == run["classes"] >= 1 and run["many"]["corrections"] >= 3
        for kind in ("single", "many"):
            for time in ("once", "twice"):
                assert run[kind][time]["right_when_taught"] == 1.0 and 0.9 <= run[kind][time]["right"] <= 1.0
                assert run[kind][time]["worst_class_loss"] >= run[kind][time]["class_loss"]


def test_novelty_stands_beside_the_distance_to_neighbours(written: dict[str, dict[str, Any]]) -> None:
    for run in written["learner-novelty-banking77"]["runs"]:
        assert len(run["left_out"]) == 17
        assert all(0.0 <= run[name] <= 1.0 for name in ("auroc", "auroc_of_neighbours", "known_flagged"))


def test_documents_quote_only_what_is_for_the_record(written: dict[str, dict[str, Any]]) -> None:
    trials = list(written.values())
    for group, table in learner_tables.GROUPS.items():
        assert measured_tables.TABLES[f"learner-{group}"](trials) == ""
        final = [{**result, "settings": {**result["settings"], "for_the_record": True}} for result in trials]
        lines = measured_tables.TABLES[f"learner-{group}"](final).splitlines()
        assert len(lines) > 2 and all(line.count("|") == len(table.columns) + 1 for line in lines)


def test_images_are_learned_taught_and_found_without_boundaries(context: Context) -> None:
    taught = few.measure(context, 0, few.Scene("fashion-mnist", 1, 2, known=2))
    assert 0.0 <= taught["5"]["learner"]["few"] <= 1.0
    found = sequences.blurry(context, 0, "mnist", "automatic")
    assert found["episodes_given"] >= 4 and found["episodes"] >= 1 and found["examples"] == 260


def test_only_the_order_of_classes_differs_between_orders(context: Context) -> None:
    runs = [sequences.in_another_order(context, order, "fashion-mnist") for order in (0, 1)]
    assert runs[0]["examples"] == runs[1]["examples"] == 260
    seeds = {(seed, learner_seed) for _, _, seed, learner_seed, _ in context._learned}
    assert seeds == {(0, 0)} and len(context._learned) == 2


def test_a_learner_is_learned_once_and_every_copy_is_its_own(context: Context) -> None:
    one, other = (sequences.usual_learner(context, "banking77", 0).learner for _ in range(2))
    assert len(context._learned) == 1
    judge = context.split("banking77", 0).judge
    before = sequences.predict(other, judge)
    one.teach(judge.x[:1], [int(judge.y[1])])
    assert (sequences.predict(other, judge) == before).all()


def test_losses_are_counted_on_the_rest_of_the_test_set(context: Context) -> None:
    judge = context.split("banking77", 0).judge
    learner = sequences.usual_learner(context, "banking77", 0).learner
    perfect = judge.y.copy()  # as if everything had been right before
    index = np.flatnonzero(judge.y == 3)[:3]
    found = corrections.correct(learner, judge, perfect, index, [3])
    rest = np.setdiff1d(np.arange(len(judge)), index)
    now = sequences.predict(learner, judge.take(rest))
    truth = judge.y[rest]
    right = [float((now[truth == c] == c).mean()) for c in range(22)]
    assert found["twice"]["class_loss"] == pytest.approx(1.0 - right[3])
    assert found["twice"]["overall_loss"] == pytest.approx(1.0 - float(np.mean(right)))


def test_validation_never_reads_the_test_set(learner_root: Path, tmp_path: Path) -> None:
    with np.load(learner_root / "banking77_small.npz") as arrays:
        np.savez(tmp_path / "banking77.npz", train_x=arrays["train_x"], train_y=arrays["train_y"])
    options = LearnerOptions(tmp_path, validation=True, settings=SHORT)
    split = Context(options, tmp_path).split("banking77", seed=0)
    assert (len(split.train), len(split.judge)) == (22 * 25, 22 * 5) and not options.for_the_record


def test_experiments_are_chosen_by_group_or_name() -> None:
    names = [e.name for e in chosen(command.EXPERIMENTS, ["few", "shares/mnist"])]
    assert names[0] == "shares/mnist" and len(names) == 6 and all(n.startswith("few/") for n in names[1:])
    assert len({e.name for e in command.EXPERIMENTS}) == len(command.EXPERIMENTS)
    with pytest.raises(OptionError, match="'many': there are sequences/mnist"):
        chosen(command.EXPERIMENTS, ["many"])


@pytest.mark.parametrize(
    ("wrong", "named"), [({"seeds": ()}, "seeds"), ({"fraction": 0.0}, "fraction"), ({"settings": {"a.b": 1}}, "a.b")]
)
def test_an_option_that_cannot_be_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        LearnerOptions(**{"data_root": Path(), **wrong})


def test_finished_seeds_are_kept_unless_the_engine_or_the_settings_changed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def measure(_: Context, seed: int) -> dict[str, Any]:
        measured.append(seed)
        return {"accuracy": 0.5}

    asked = Experiment("shares", "anything", "Anything", measure)
    first = replace(context, options=replace(context.options, seeds=(1,)))
    run_all([asked], first, tmp_path, lambda *_: None)
    (result,) = run_all([asked], context, tmp_path, lambda *_: None)
    assert measured == [1, 0, 2] and [run["seed"] for run in result.runs] == [0, 1, 2]
    (result,) = run_all([asked], first, tmp_path, lambda *_: None, again=True)
    assert measured == [1, 0, 2, 1] and [run["seed"] for run in result.runs] == [0, 1, 2]
    run_all([asked], replace(first, options=replace(first.options, fraction=0.5)), tmp_path, lambda *_: None)
    monkeypatch.setattr(experiment, "engine_digest", lambda: "another")
    run_all([asked], replace(first, options=replace(first.options, fraction=0.5)), tmp_path, lambda *_: None)
    assert measured == [1, 0, 2, 1, 1, 1]
