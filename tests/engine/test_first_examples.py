"""Teaching from nothing: the first few examples make a scale together, however they came, and none of them is lost."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from sharp_engine import Cancelled, Learner, SnapshotError, preset
from sharp_engine.checks import check_resume, check_same, check_taught, copy_of
from sharp_engine.memory.first_examples import ENOUGH
from tests.engine.fixtures import CancelAfter, examples, metric
from tests.engine.test_snapshot import forged, replaced


def lesson(count: int, seed: int = 0) -> tuple[torch.Tensor, list[Any]]:
    x, y = examples(range(4), each=-(-count // 4), seed=seed)
    return x[:count] * torch.tensor([1.0, 30.0, 1.0, 5.0, 1.0, 1.0]), y[:count]


def taught(count: int, size: int) -> Learner:
    learner = Learner(metric())
    x, y = lesson(count)
    for begin in range(0, count, size):
        learner.teach(x[begin : begin + size], y[begin : begin + size])
    return learner


@pytest.mark.parametrize("count", [1, 7, ENOUGH - 1])
def test_while_they_are_few_it_makes_no_difference_in_what_parts_they_came(count: int) -> None:
    together = taught(count, count)
    for size in (1, 3):
        check_same(taught(count, size), together)
    assert together.first is not None and len(together.first.class_ids) == count


def test_enough_of_them_settle_the_scale_and_are_kept_no_longer() -> None:
    learner, together = taught(ENOUGH, 1), taught(ENOUGH, ENOUGH)
    assert learner.first is None
    check_same(learner, together)
    assert learner.preprocessor.scale is not None
    scale = learner.preprocessor.scale
    torch.testing.assert_close(scale.mean, lesson(ENOUGH)[0].mean(0))
    torch.testing.assert_close(scale.deviation, lesson(ENOUGH)[0].std(0))
    learner.teach(*lesson(30, seed=4))
    assert learner.preprocessor.scale is scale


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 16), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_what_is_taught_first_is_right_at_once_and_the_same_saved_or_not(
    calls: list[tuple[int, bool, bool]],
) -> None:
    learner, other = Learner(metric()), Learner(metric())
    for number, (count, correct, saved) in enumerate(calls):
        x, y = lesson(count, seed=number)
        for one in (learner, other):
            one.teach(x, y, correct=correct)
        if correct:
            check_taught(learner, x, y)
        other = copy_of(other) if saved else other
    check_same(learner, other)
    assert sum(learner.inspect().examples_per_class.values()) == sum(count for count, _, _ in calls)


def test_an_episode_makes_a_scale_for_what_was_taught_before_it_too() -> None:
    learner = taught(6, 1)
    now = lesson(60, seed=3)
    check_resume(learner, lambda copy: copy.learn_episode(*now))
    learner.learn_episode(*now)
    assert learner.first is None and learner.preprocessor.scale is not None
    every = torch.cat((lesson(6)[0], now[0]))
    torch.testing.assert_close(learner.preprocessor.scale.mean, every.mean(0))
    assert sum(learner.inspect().examples_per_class.values()) == 66
    check_taught(learner, *lesson(6))


def test_an_abandoned_episode_takes_its_scale_with_it() -> None:
    learner = taught(6, 1)
    before = copy.deepcopy(learner)
    with pytest.raises(Cancelled):
        learner.learn_episode(*lesson(60, seed=3), cancel=CancelAfter(3))
    check_resume(learner, lambda copy: copy.resume_episode())
    check_resume(learner, lambda copy: copy.abandon_episode())
    again = copy.deepcopy(learner)
    learner.abandon_episode()
    check_same(before, learner)
    again.teach(*lesson(5, seed=7))
    check_resume(again, lambda copy: copy.resume_episode())
    again.abandon_episode()
    before.teach(*lesson(5, seed=7))
    check_same(before, again)


def test_first_examples_are_forgotten_renamed_and_merged() -> None:
    learner = taught(12, 1)
    learner.rename_class(0, 9)
    learner.merge_classes(1, 2)
    check_same(copy_of(learner), learner)
    learner.forget(9)
    check_same(copy_of(learner), learner)
    other = Learner(metric())
    x, y = lesson(12)
    rows = [row for row, label in enumerate(y) if label != 0]
    other.teach(x[rows], [2 if y[row] == 1 else y[row] for row in rows])
    assert learner.inspect().examples_per_class == other.inspect().examples_per_class
    assert learner.predict(x).labels == other.predict(x).labels
    learner.forget(2)
    learner.forget(3)
    assert learner.preprocessor.scale is None and learner.inspect().classes == ()
    learner.teach(x, y)
    check_taught(learner, x, y)


def test_first_examples_that_cannot_be_are_refused(tmp_path: Path) -> None:
    taught(6, 1).save(tmp_path / "learner")
    with safe_open(tmp_path / "learner", framework="pt") as file:
        tensors, description = {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["learner"])  # noqa: SIM118
    known = description["metric"]["first"]
    words: dict[tuple[Any, ...], Any] = {
        ("metric", "first"): None,
        ("metric", "first", "class_ids"): known["class_ids"][:3],
        ("metric", "first", "class_ids", 0): 777,
        ("metric", "first", "correct"): [True],
        ("metric", "first", "correct", 0): 1,
        ("episodes",): 1,
    }
    for place, value in words.items():
        with pytest.raises(SnapshotError):
            Learner.load(forged(tmp_path, tensors, replaced(description, place, value)))
    for name in ("first.features",):
        for tensor in (tensors[name][:2], tensors[name].half(), tensors[name] * torch.nan):
            with pytest.raises(SnapshotError):
                Learner.load(forged(tmp_path, {**tensors, name: tensor.contiguous()}, description))


def test_digits_taught_singly_are_not_far_below_their_nearest_neighbours() -> None:
    from sklearn.datasets import load_digits

    every, labels = load_digits(return_X_y=True)
    every = every.astype("float32")
    behind: dict[int, list[float]] = {100: [], 200: []}
    for split in range(6):
        order = np.random.default_rng(split).permutation(len(labels))
        learner = Learner(preset("default").with_options({"device": "cpu", "metric.random_features": 500}))
        for count in behind:
            seen, unseen = order[:count], order[count:]
            for row in order[count - 100 : count]:
                learner.teach(every[row : row + 1], labels[row : row + 1])
            right = np.mean(np.array(learner.predict(every[unseen]).labels) == labels[unseen])
            apart = torch.cdist(torch.from_numpy(every[unseen]), torch.from_numpy(every[seen]))
            nearest = np.mean(labels[seen][apart.argmin(1).numpy()] == labels[unseen])
            behind[count].append(float(nearest - right))
    assert all(np.mean(found) <= 0.03 for found in behind.values()), behind
