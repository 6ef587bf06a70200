"""The speed benchmark measures what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.datasets import synthetic
from benchmarks.errors import OptionError
from benchmarks.speed import __main__ as command
from benchmarks.speed.answers import floor_of
from benchmarks.speed.baseline import DenseNetwork, contrastive_loss
from benchmarks.speed.measure import SpeedOptions
from benchmarks.speed.metric_clock import EpisodeCost, learn_timed
from benchmarks.speed.sequence import AtOnce, SequenceTimes, learn_at_once
from benchmarks.speed.teaching import learner_of
from benchmarks.speed.teaching import measure as measure_teaching
from benchmarks.speed.timing import Comparison, Spent, in_turns
from sharp_engine import Learner, preset
from sharp_engine.config import ArchitectureConfig
from sharp_engine.network.architecture import resolve_architecture
from sharp_engine.training.loss import supervised_contrastive_loss
from tests.engine import standin
from tests.engine.standin import accelerator


def test_the_dense_network_has_the_engines_shape() -> None:
    dense = DenseNetwork(resolve_architecture(ArchitectureConfig(), (1, 28, 28)))
    assert dense.cut_shape == (16, 7, 7)
    assert dense(torch.rand(2, 1, 28, 28)).shape == (2, 500)
    assert sum(p.numel() for p in dense.parameters()) == (9 + 1) * 16 + (16 * 9 + 1) * 16 + 785 * 500 + 501 * 500


def test_the_dense_network_is_trained_with_the_engines_loss() -> None:
    z, y = torch.randn(12, 5), torch.tensor([0, 1, 2] * 3 + [3, 0, 0])  # class 3 has no positive
    torch.testing.assert_close(contrastive_loss(z, y, 0.2), supervised_contrastive_loss(z, y, 0.2))


def test_both_sides_are_called_as_often() -> None:
    calls: list[str] = []
    ours, theirs = in_turns(lambda: calls.append("a"), lambda: calls.append("b"), rounds=4, least_seconds=0.0)
    assert calls.count("a") == calls.count("b") == 5
    assert calls[2:] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert ours.wall >= 0.0 and theirs.wall >= 0.0


def test_a_ratio_is_ours_over_theirs() -> None:
    comparison = Comparison("x", "call", Spent(1.0, 3.0), Spent(2.0, 4.0))
    assert (comparison.cpu_ratio, comparison.wall_ratio) == (0.5, 0.75)


def test_every_part_is_measured_printed_and_saved(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    outcome = CliRunner().invoke(command.app, ["--tiny", "--output", str(file)])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(file.read_text())
    assert len(found["sequence"]["comparisons"]) == 4 and found["sequence"]["epochs_at_once"] in (1, 2)
    for row in found["sequence"]["comparisons"]:
        assert 0 < row["cpu_seconds"] and 0 < row["baseline_cpu_seconds"]
    assert [(row["batch"], row["classes"]) for row in found["answers"]] == [(1, 10), (8, 10), (1, 6), (8, 6)]
    assert all(0 < row["teach_ms"] <= row["with_prediction_ms"] for row in found["teaching"])
    assert [(row["classes"], row["examples"]) for row in found["teaching"]] == [(6, 4), (6, 4)]
    assert len(found["training"]) == 4 and all(row["cpu_ratio"] > 0 for row in found["training"])
    assert [e["epochs"] for e in found["training_by_episode"]["mnist"]] == [1] * 5
    sizes = [(row["memories"], row["batch"], row["classes"]) for row in found["prediction"]]
    assert sizes == [(kind, batch, 12) for kind in ("clusters", "random") for batch in (1, 8)]
    assert len(found["growth"]["cpu_seconds"]) == 4 and found["growth"]["memory_bytes"][-1] > 0
    assert [row["name"].split(": ")[1] for row in found["snapshot"]] == ["save", "load"] * 2
    assert found["settings"]["full_sizes"] is False and found["machine"]["threads"] >= 1
    for title in (
        "learner's sequence",
        "answers against",
        "Teaching one",
        "Training the network",
        "Prediction against",
        "Growth over",
        "Snapshots against",
    ):
        assert title in outcome.output


def test_the_device_goes_through_both_sides_of_every_part(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    with accelerator():  # refuses any product of a tensor that is there with one that is not
        outcome = CliRunner().invoke(command.app, ["--tiny", "--device", standin.NAME, "--output", str(file)])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(file.read_text())["settings"]["device"] == standin.NAME
    assert "compare by wall" in outcome.output


def test_a_sequence_is_compared_as_a_whole_and_until_the_metric_answers() -> None:
    episodes = [EpisodeCost(Spent(3.0, 4.0), Spent(1.0, 1.5)), EpisodeCost(Spent(5.0, 6.0), Spent(1.0, 1.5))]
    at_once = AtOnce(Spent(16.0, 20.0), epochs=4, accuracy=0.99, reached=True)
    times = SequenceTimes(0.98, episodes, [Spent(8.0, 8.0), Spent(8.0, 12.0)], at_once)
    assert [c.cpu_ratio for c in times.comparisons] == [0.5, 0.125, 0.5, 0.125]
    assert [c.target for c in times.comparisons] == [1.0, 0.6, None, None]
    assert times.comparisons[2].beside.endswith("4 epochs until it is as accurate")


def test_the_classifier_stops_once_it_is_as_accurate_or_has_no_epochs_left() -> None:
    torch.manual_seed(0)
    train, judge = (synthetic.images(3, number, (1, 28, 28), seed=number) for number in (40, 10))
    network = DenseNetwork(resolve_architecture(ArchitectureConfig(kind="conv-small"), (1, 28, 28)))
    found = learn_at_once(network, [train], judge, 0.9, batch=16, most_epochs=20)
    assert found.reached and found.accuracy >= 0.9 and 1 <= found.epochs < 20 and found.spent.wall > 0
    never = learn_at_once(network, [train], judge, 1.1, batch=16, most_epochs=2)
    assert not never.reached and never.epochs == 2


SMALL = {
    "training.phases": 1, "training.min_steps": 0, "architecture.dictionary.atoms": 6,
    "architecture.dictionary.patches": 300, "metric.random_features": 30,
}  # fmt: skip


def test_the_floor_does_the_work_of_the_learners_features() -> None:
    learner, images = Learner(preset("default").with_options(SMALL)), synthetic.images(3, 20, (1, 28, 28))
    cost = learn_timed(learner, images)
    assert 0.0 < cost.metric.wall < cost.whole.wall
    linear, quadratic, _ = floor_of(learner)(torch.from_numpy(images.x[:5]).float())
    assert linear.shape == quadratic.shape == (5, 3)


def test_a_learner_is_taught_examples_it_has_not_seen() -> None:
    known, unseen = (synthetic.vectors(4, number, 8, seed=number) for number in (10, 2))
    learner = learner_of(preset("default").with_options(SMALL), known, per_episode=2)
    found = measure_teaching(learner, "vectors", unseen)
    assert (found.classes, found.examples) == (4, 7) and 0.0 < found.teach_ms < found.with_prediction_ms
    assert sum(learner.inspect().examples_per_class.values()) == 48


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match="'sleep'"):
        SpeedOptions(parts=("sleep",))  # type: ignore[arg-type]
