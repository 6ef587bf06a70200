"""Quality: figures as one gets them by hand from the same held-out examples, kept and forgotten with the learner."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from sharp_engine import ClassQuality, Confusion, Learner, Quality, SnapshotError
from sharp_engine.checks import check_same, copy_of
from sharp_engine.memory.semantic import empty_semantic_memory
from sharp_engine.prediction.metric import Metric, fit_whitening, whitened_means
from sharp_engine.prediction.quality import measure
from tests.engine.fixtures import examples, metric, mlp, trained
from tests.engine.test_snapshot import forged, replaced

NOISY = {"phases": 1, "rest_after": 1, "representatives": 12}


def noisy(classes: int = 4, each: int = 12, seed: int = 0) -> tuple[torch.Tensor, list[Any]]:
    return examples(range(classes), each=each, seed=seed, noise=0.6)


def learned(seed: int = 0) -> Learner:
    learner = Learner(metric(**NOISY))
    learner.learn_episode(*noisy(seed=seed))
    return learner


def by_hand(learner: Learner, x: torch.Tensor, labels: list[Any]) -> Counter[tuple[Any, Any]]:
    """How often which label is answered for which, by metrics that are really made anew without the example."""
    known = learner.knowledge
    assert known is not None
    y = torch.tensor([learner.labels.find(label) for label in labels])
    phi = learner.feature_map(learner.preprocessor(x))
    answers: Counter[tuple[Any, Any]] = Counter()
    for row in range(len(y)):
        rest = torch.arange(len(y)) != row
        memory = empty_semantic_memory(phi.shape[1], phi.device).learn([(phi[rest], y[rest])])
        whitening = fit_whitening(memory, learner.feature_map.stable, learner.config.metric)
        means = whitened_means(memory, whitening)
        its = Metric.of(means, learner.config.metric.floor, known.calibration.noise)
        answer = its.class_ids[int(its.scores(its.coordinates(whitening(phi[row : row + 1])).z).argmax())]
        answers[labels[row], learner.labels.label(answer)] += 1
    return answers


@pytest.mark.parametrize("seed", [1, 3])
def test_figures_are_those_of_metrics_that_never_saw_the_example(seed: int) -> None:
    """Every example is a representative here."""
    learner = learned(seed)
    answers, quality = by_hand(learner, *noisy(seed=seed)), learner.quality()
    assert quality is not None and quality.examples == 48
    right = sum(count for (truth, answered), count in answers.items() if truth == answered)
    assert quality.accuracy == right / 48 and 0.5 < quality.accuracy < 0.95
    assert {c.label: (c.examples, c.right) for c in quality.classes} == {
        label: (12, answers[label, label]) for label in range(4)
    }
    wrong = {pair: count for pair, count in answers.items() if pair[0] != pair[1]}
    assert {(pair.truth, pair.answered): pair.count for pair in quality.confusions} == wrong
    assert [pair.count for pair in quality.confusions] == sorted(wrong.values(), reverse=True)


def test_over_many_streams_the_figures_are_hardly_kinder_than_those_by_hand() -> None:
    """What all examples have in common, scales and shrinkage, is not fitted again: it makes next to no difference."""
    kinder = []
    for seed in range(8):
        learner = learned(seed)
        quality, answers = learner.quality(), by_hand(learner, *noisy(seed=seed))
        assert quality is not None
        kinder.append(quality.accuracy - sum(answers[label, label] for label in range(4)) / 48)
    assert all(abs(difference) <= 0.07 for difference in kinder)
    assert 0.0 <= sum(kinder) / len(kinder) <= 0.025


def test_accuracy_on_held_out_examples_is_that_on_examples_never_seen() -> None:
    learner = Learner(metric(phases=1, rest_after=1))
    learner.learn_episode(*examples(range(5), each=100, seed=1, noise=0.5))
    quality = learner.quality()
    assert quality is not None and quality.examples == 500  # few classes: every example is a representative
    x, y = examples(range(5), each=300, seed=2, noise=0.5)
    accuracy = sum(a == b for a, b in zip(learner.predict(x).labels, y, strict=True)) / len(y)
    assert quality.accuracy == pytest.approx(accuracy, abs=0.08)
    assert all(known.accuracy == known.right / known.examples for known in quality.classes)


def test_without_a_metric_or_with_too_few_examples_there_is_none() -> None:
    assert trained(mlp()).quality() is None and Learner(metric()).quality() is None
    learner = trained(metric(), ((0, 1),), each=5)
    assert learner.quality() is None and learner.inspect().quality is None


def test_quality_is_kept_in_snapshots_and_goes_on_with_the_learner() -> None:
    learner = learned()
    assert learner.inspect().quality == learner.quality() == copy_of(learner).quality()
    before = learner.quality()
    learner.teach(*noisy(each=1, seed=5), correct=False)
    assert learner.quality() == before  # measured again when the metric is
    learner.learn_episode(*noisy(6, seed=6))
    quality = learner.quality()
    assert quality is not None and [c.label for c in quality.classes] != [c.label for c in (before or quality).classes]
    check_same(copy_of(learner), learner)


def test_a_class_that_is_forgotten_has_no_part_in_it() -> None:
    learner = learned()
    learner.forget(2)
    quality = learner.quality()
    assert quality is not None and {c.label for c in quality.classes} == {0, 1, 3}
    assert 2 not in {label for pair in quality.confusions for label in (pair.truth, pair.answered)}
    check_same(copy_of(learner), learner)


ANSWERS = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(1, 9), min_size=1)


@given(ANSWERS, st.integers(0, 4))
def test_all_figures_agree_with_one_another_also_without_a_class(
    answers: dict[tuple[int, int], int], gone: int
) -> None:
    quality: Quality | None = measure(Counter(answers), range(5))
    assert quality is not None and quality.examples == sum(answers.values())
    for now in (quality, quality.without(gone)):
        if now is None:
            assert all(gone in pair for pair in answers)
            continue
        wrong = Counter({known.label: known.examples - known.right for known in now.classes})
        for pair in now.confusions:
            wrong[pair.truth] -= pair.count
        assert not +wrong and not -wrong
        assert 0.0 <= now.accuracy <= 1.0
    left = Counter({pair: count for pair, count in answers.items() if gone not in pair})
    assert quality.without(gone) == (measure(left, range(5)) if left else None)


def test_figures_are_given_by_label() -> None:
    quality = measure(Counter({(7, 7): 3, (7, 9): 2}), [9, 7]).named(lambda class_id: f"class {class_id}")
    assert quality.classes == (ClassQuality("class 7", 5, 3),)
    assert quality.confusions == (Confusion("class 7", "class 9", 2),)


def test_figures_that_cannot_be_are_refused(tmp_path: Path) -> None:
    learner = learned()
    learner.save(tmp_path / "learner")
    with safe_open(tmp_path / "learner", framework="pt") as file:
        tensors, description = {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["learner"])  # noqa: SIM118
    at = ("metric", "calibration", "quality")
    known = description["metric"]["calibration"]["quality"]
    assert len(known["confusions"]) > 1
    words: dict[tuple[Any, ...], Any] = {
        ("classes",): [],
        ("classes", 0, 0): 777,
        ("classes", 0, 1): 0,
        ("classes", 0, 2): 10**6,
        ("classes", 1): known["classes"][0],
        ("confusions",): [],
        ("confusions", 0, 0): 777,
        ("confusions", 0, 1): known["confusions"][0][0],
        ("confusions", 0, 2): -1,
        ("confusions", 1): known["confusions"][0],
        ("confusions", 0): known["confusions"][0][:2],
        (): {"classes": known["classes"]},
    }
    for place, value in words.items():
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, tensors, replaced(description, (*at, *place), value)))
