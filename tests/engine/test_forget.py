"""Forgetting a class: gone from both memories and never named again; the rest stays as it was."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch

from sharp_engine import Cancelled, LabelError, Learner, NothingLearnedError, UnknownClassError
from sharp_engine.checks import check_budgets, check_masks, check_same, copy_of
from tests.engine.fixtures import CancelAfter, examples, mlp, trained

QUESTIONS, _ = examples(range(6), each=4, noise=0.5, seed=60)


@pytest.mark.parametrize("label", range(6))
def test_a_forgotten_class_is_never_named_again(label: int) -> None:
    learner = trained(mlp(replayed_episodes=2))
    learner.forget(label)
    answer = learner.predict(QUESTIONS, top=10, memories=100)
    for named in (answer.labels, *answer.top_labels, *answer.memory_labels):
        assert label not in named
    assert label not in learner.inspect().classes and len(learner.inspect().classes) == 5
    class_ids = {s.class_id for s in learner.stm.classes} | {c.class_id for c in learner.ltm.classes}
    assert label not in {learner.labels.label(i) for i in class_ids}
    check_budgets(learner)
    check_masks(learner)


def test_the_others_stay_as_they_were() -> None:
    learner = trained(mlp(replayed_episodes=2))
    before = copy.deepcopy(learner)
    forgotten = learner.labels.find(3)
    learner.forget(3)
    for was, now in zip(before.network.layers, learner.network.layers, strict=True):
        assert torch.equal(was.weight, now.weight) and torch.equal(was.ranks, now.ranks)
    assert torch.equal(before.generator.get_state(), learner.generator.get_state())
    memories = [c for c in before.ltm.classes if c.class_id != forgotten]
    for known, knew in zip(learner.ltm.classes, memories, strict=True):
        assert (known.class_id, known.episode) == (knew.class_id, knew.episode)
        assert torch.equal(known.vectors, knew.vectors) and torch.equal(known.mask, knew.mask)
    left = [s for s in before.stm.classes if s.class_id != forgotten]
    for held, had in zip(learner.stm.classes, left, strict=True):
        assert held.class_id == had.class_id and torch.equal(held.packed.codes, had.packed.codes)


def test_distances_to_the_memories_of_others_do_not_change() -> None:
    learner = trained(mlp())
    before = learner.predict(QUESTIONS, memories=1000)
    learner.forget(2)
    after = learner.predict(QUESTIONS, memories=1000)
    for i in range(len(QUESTIONS)):
        kept = [
            (label, distance)
            for label, distance in zip(before.memory_labels[i], before.memory_distance[i], strict=True)
            if label != 2
        ]
        np.testing.assert_allclose(after.memory_distance[i], [d for _, d in kept], atol=1e-5)


def test_a_forgotten_class_may_be_learned_again_as_a_new_one() -> None:
    learner = trained(mlp())
    learner.forget(0)
    report = learner.learn_episode(*examples((0, 6), seed=7))
    assert set(report.new_classes) == {0, 6}
    assert 0 in learner.inspect().classes


def test_a_forgotten_learner_goes_on_like_its_snapshot() -> None:
    learner = trained(mlp(replayed_episodes=2))
    learner.forget(4)
    loaded = copy_of(learner)
    check_same(loaded, learner)
    for one in (learner, loaded):
        one.learn_episode(*examples((6, 7), seed=7))
    check_same(loaded, learner)
    assert loaded.predict(QUESTIONS).labels == learner.predict(QUESTIONS).labels


def test_after_the_last_class_is_forgotten_nothing_is_named() -> None:
    learner = trained(mlp(), ((0, 1),))
    learner.forget(0)
    learner.forget(1)
    with pytest.raises(NothingLearnedError):
        learner.predict(QUESTIONS)
    assert learner.inspect().ltm_entries == learner.inspect().stm_examples == 0
    check_same(copy_of(learner), learner)
    learner.learn_episode(*examples((2, 3)))
    assert set(learner.predict(QUESTIONS).labels) <= {2, 3}


def test_forgetting_twice_is_forgetting_an_unknown_class() -> None:
    learner = trained(mlp())
    learner.forget(1)
    with pytest.raises(UnknownClassError, match="1"):
        learner.forget(1)


@pytest.mark.parametrize("label", [True, 1.0, None, [1]])
def test_only_a_label_forgets(label: Any) -> None:
    learner = trained(mlp(), ((0, 1),))
    before = copy.deepcopy(learner)
    with pytest.raises(LabelError, match=re.escape(repr(label))):
        learner.forget(label)
    check_same(before, learner)


def test_observed_examples_of_a_forgotten_class_are_not_learned() -> None:
    learner, without = trained(mlp()), trained(mlp())
    x, y = examples((6, 7, 0), seed=7)
    learner.observe(x[:25], y[:25])
    learner.observe(x[25:], y[25:])
    learner.forget(7)
    others = [i for i, label in enumerate(y) if label != 7]
    assert learner.inspect().pending_examples == len(others)
    report = learner.end_episode()
    assert set(report.classes) == {0, 6}
    without.learn_episode(x[others], [y[i] for i in others])
    for one, other in zip(learner.network.layers, without.network.layers, strict=True):
        assert torch.equal(one.weight, other.weight)


def test_a_class_that_was_only_observed_can_be_forgotten() -> None:
    learner = Learner(mlp())
    learner.observe(*examples((0, 1)))
    learner.forget(1)
    assert set(learner.end_episode().classes) == {0}


def in_progress(classes: tuple[int, ...], holdout: float = 0.2) -> Learner:
    learner = trained(mlp(holdout=holdout), ((0, 1), (2, 3)), each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples(classes, each=24, seed=8), cancel=CancelAfter(2 + 2 * len(classes)))
    assert learner.inspect().phases_done == 1
    return learner


def test_a_class_is_forgotten_in_the_middle_of_its_episode() -> None:
    learner = in_progress((4, 5, 0))
    learner.forget(5)
    assert learner.running is not None and learner.running.examples is not None
    assert len(learner.running.examples.y) == 48
    assert int(learner.running.heldout.max()) < 48 and len(learner.running.heldout) == 10
    check_same(copy_of(learner), learner)
    report = learner.resume_episode()
    assert set(report.classes) == {4, 0}
    answer = learner.predict(QUESTIONS, top=10)
    assert 5 not in {label for row in answer.top_labels for label in row}


def test_forgetting_the_only_class_of_an_episode_abandons_it() -> None:
    learner = in_progress((4,), holdout=0.0)
    learner.forget(4)
    assert learner.running is None and learner.inspect().episodes == 2
    before = trained(mlp(), ((0, 1), (2, 3)), each=24)
    for one, other in zip(learner.network.layers, before.network.layers, strict=True):
        assert torch.equal(one.weight, other.weight)
    learner.learn_episode(*examples((4, 5), seed=8))


def test_an_old_class_is_forgotten_in_the_middle_of_an_episode() -> None:
    learner = in_progress((4, 5))
    learner.forget(0)
    learner.forget(2)
    assert 0 not in learner.predict(QUESTIONS, top=10).top_labels[0]
    learner.resume_episode()
    assert set(learner.inspect().classes) == {1, 3, 4, 5}
    check_budgets(learner)


def test_found_episodes_are_shortened_by_the_forgotten_class() -> None:
    config = mlp(boundaries="automatic", window=16, min_examples=32, max_examples=64, phases=1)
    learner = Learner(config)
    x, y = examples((0, 1, 2), each=64, seed=9)
    with pytest.raises(Cancelled):
        learner.observe(x, y, cancel=CancelAfter(0))
    waiting = learner.inspect().pending_examples
    assert learner.found
    learner.forget(1)
    assert learner.inspect().pending_examples < waiting
    assert sum(learner.found) <= learner.inspect().pending_examples
    check_same(copy_of(learner), learner)
    learner.learn_found()
    assert set(learner.inspect().classes) == {0, 2}
