"""Renaming keeps everything; merging is as if all examples had been of one class from the start."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sharp_engine import Cancelled, EpisodeStateError, LabelError, Learner, LearnerConfig, UnknownClassError
from sharp_engine.checks import check_budgets, check_masks, check_order, check_resume, check_same, check_taught, copy_of
from sharp_engine.labels import Label
from tests.engine.fixtures import IMAGE, VECTOR, CancelAfter, examples, metric, mlp, pictures, trained

QUIET = {"phases": 1, "rest_after": 1}
KINDS = pytest.mark.parametrize(
    ("config", "shape"), [(metric(), VECTOR), (pictures(), IMAGE), (mlp(), VECTOR)], ids=["mlp", "images", "sharp"]
)


def as_one(labels: Sequence[Label], source: Label, target: Label) -> list[Label]:
    return [target if label == source else label for label in labels]


# ---- renaming ---------------------------------------------------------------------------------------------------


@KINDS
def test_a_renamed_class_is_known_by_its_new_name_and_nothing_else_changes(
    config: LearnerConfig, shape: tuple[int, ...]
) -> None:
    learner = trained(config, ((0, 1), (2, 3)), shape, each=24)
    x, _ = examples(range(4), shape, each=10, seed=5)
    before, quality = learner.predict(x, top=4), learner.quality()
    learner.rename_class(1, 77)
    after = learner.predict(x, top=4)
    assert after.labels == as_one(before.labels, 1, 77)
    assert after.top_labels == [as_one(row, 1, 77) for row in before.top_labels]
    assert (after.share == before.share).all()
    now = learner.quality()
    assert (now is None) == (quality is None)
    if now is not None and quality is not None:
        assert [c.label for c in now.classes] == as_one([c.label for c in quality.classes], 1, 77)
        assert now.accuracy == quality.accuracy
    assert set(learner.inspect().classes) == {0, 77, 2, 3}
    with pytest.raises(UnknownClassError):
        learner.forget(1)
    check_same(copy_of(learner), learner)
    learner.learn_episode(*examples((77, 4), shape, seed=6))
    assert set(learner.inspect().classes) == {0, 77, 2, 3, 4}


def test_a_predictor_in_use_keeps_the_names_it_was_made_with() -> None:
    learner = trained(metric(), ((0, 1),))
    predictor = learner.predictor
    learner.rename_class(0, 5)
    assert set(predictor.classes) == {0, 1} and set(learner.predictor.classes) == {5, 1}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [(9, 5, UnknownClassError), (0, 1, LabelError), (0, "five", LabelError), (0, True, LabelError)],
    ids=["unknown", "taken", "another kind", "no label"],
)
def test_a_name_that_cannot_be_given_is_refused_and_changes_nothing(
    old: Label, new: Label, error: type[Exception]
) -> None:
    learner = trained(metric(), ((0, 1),))
    before = copy.deepcopy(learner)
    with pytest.raises(error):
        learner.rename_class(old, new)
    check_same(before, learner)
    learner.rename_class(0, 0)
    check_same(before, learner)


def test_a_class_is_renamed_in_the_middle_of_an_episode_and_while_examples_wait() -> None:
    learner = trained(metric(), ((0, 1),), each=24)
    learner.observe(*examples((2, 3), each=6, seed=3))
    learner.rename_class(2, 22)
    learner.end_episode()
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 0), each=24, seed=4), cancel=CancelAfter(4))
    learner.rename_class(4, 44)
    learner.rename_class(0, 100)
    check_resume(learner, lambda copy: copy.resume_episode())
    learner.resume_episode()
    assert set(learner.inspect().classes) == {100, 1, 22, 3, 44}


# ---- merging ----------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True), min_size=1, max_size=4),
    st.integers(1, 12),
    st.booleans(),
    st.permutations(range(5)),
)
def test_merged_classes_are_as_if_all_examples_had_been_of_one(
    sequence: list[list[int]], each: int, taught: bool, order: list[int]
) -> None:
    source, target = order[:2]
    merged, single = trained(metric(**QUIET), (range(5),)), Learner(metric(**QUIET))
    x, y = examples(range(5), seed=0)
    single.learn_episode(x, as_one(y, source, target))
    for number, classes in enumerate(sequence):
        lesson, labels = examples(classes, each=each, seed=7 + number)
        for learner, its in ((merged, labels), (single, as_one(labels, source, target))):
            learner.teach(lesson, its, correct=False) if taught else learner.learn_episode(lesson, its)
    merged.merge_classes(source, target)
    check_order(merged, single)
    assert merged.inspect().examples_per_class == single.inspect().examples_per_class
    x, _ = examples(range(5), each=80, seed=90)
    answers = [learner.predict(x, novelty=False).labels for learner in (merged, single)]
    assert sum(a == b for a, b in zip(*answers, strict=True)) >= 0.95 * len(x)
    check_same(copy_of(merged), merged)


@KINDS
def test_examples_of_both_classes_are_answered_with_the_target(config: LearnerConfig, shape: tuple[int, ...]) -> None:
    for source, target in ((0, 1), (0, 3), (3, 0)):
        learner = trained(config, ((0, 1), (2, 3)), shape, each=30)
        x, y = examples(range(4), shape, each=20, seed=5, noise=0.2)
        wanted = as_one(y, source, target)
        before = np.array(as_one(learner.predict(x).labels, source, target)) == np.array(wanted)
        learner.merge_classes(source, target)
        after = np.array(learner.predict(x).labels) == np.array(wanted)
        assert after.mean() >= before.mean() - 0.15
        assert source not in learner.inspect().classes
        check_budgets(learner)
        check_masks(learner)
        check_same(copy_of(learner), learner)
        check_resume(learner, lambda copy: copy.learn_episode(*examples((4, 5), shape, seed=8)))
        learner.learn_episode(*examples((4, target), shape, seed=9))
        check_budgets(learner)
        check_masks(learner)


def test_memories_of_both_go_to_the_target_within_their_bounds() -> None:
    learner = trained(metric(), ((0, 1, 2), (3, 4)), each=40)
    learner.teach(*examples((3, 4), each=4, seed=5, noise=0.9))
    assert learner.knowledge is not None
    held = {learner.labels.label(s.class_id): len(s.packed) for s in learner.stm.classes}
    known = {learner.labels.label(c.class_id): len(c.vectors) for c in learner.ltm.classes}
    corrections = len(learner.knowledge.episodic.correction_ids)
    target = learner.labels.find(4)
    learner.merge_classes(3, 4)
    assert {learner.labels.label(s.class_id): len(s.packed) for s in learner.stm.classes} == {4: held[3] + held[4]}
    most = learner.config.memory.ltm_per_class
    now = {learner.labels.label(c.class_id): len(c.vectors) for c in learner.ltm.classes}
    assert now == {0: known[0], 1: known[1], 2: known[2], 4: min(most, known[3] + known[4])}
    episodic = learner.knowledge.episodic
    assert len(episodic.correction_ids) == corrections
    representatives = next(c for c in episodic.classes if c.class_id == target)
    assert len(representatives.features) <= learner.config.metric.representatives_of(4)


def test_a_class_that_is_replayed_no_longer_takes_the_other_with_it() -> None:
    learner = trained(metric(), ((0, 1), (2, 3)), each=30)
    learner.merge_classes(2, 0)  # 0 has left short-term memory
    assert [learner.labels.label(s.class_id) for s in learner.stm.classes] == [3]
    kept = next(c for c in learner.ltm.classes if c.class_id == learner.labels.find(0))
    learner.learn_episode(*examples((4, 5), seed=3))
    later = next(c for c in learner.ltm.classes if c.class_id == learner.labels.find(0))
    assert torch.equal(kept.vectors, later.vectors) and torch.equal(kept.mask, later.mask)


def test_a_class_that_only_the_metric_knows_merges_into_one_that_the_network_knows_and_the_other_way() -> None:
    for source, target in ((7, 0), (0, 7)):
        learner = trained(metric(), ((0, 1),), each=30)
        learner.teach(*examples((7,), each=3, seed=4))
        learner.merge_classes(source, target)
        assert learner.inspect().examples_per_class == {target: 33, 1: 30}
        assert target in {learner.labels.label(c.class_id) for c in learner.ltm.classes}
        check_same(copy_of(learner), learner)


def test_corrections_of_the_source_are_answered_with_the_target() -> None:
    learner = trained(metric(**QUIET), ((0, 1), (2, 3)), each=40)
    x, _ = examples((0,), each=3, seed=4, noise=0.1)
    learner.teach(x, [2, 2, 2])
    learner.merge_classes(2, 3)
    check_taught(learner, x, [3, 3, 3])


def test_pending_examples_of_the_source_become_the_targets() -> None:
    learner = trained(metric(), ((0, 1),))
    learner.observe(*examples((2, 3), each=5, seed=3))
    learner.merge_classes(2, 0)
    check_resume(learner, lambda copy: copy.end_episode())
    learner.end_episode()
    assert learner.inspect().examples_per_class == {0: 25, 1: 20, 3: 5}


def test_in_the_middle_of_an_episode_merging_is_refused_and_changes_nothing() -> None:
    learner = trained(metric(), ((0, 1),), each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((2, 3), each=24, seed=4), cancel=CancelAfter(4))
    before = copy.deepcopy(learner)
    with pytest.raises(EpisodeStateError, match="in progress"):
        learner.merge_classes(0, 1)
    check_same(before, learner)


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [(9, 0, UnknownClassError), (0, 9, UnknownClassError), (0, 0, LabelError), ("0", 1, UnknownClassError)],
)
def test_classes_that_cannot_be_merged_are_refused_and_nothing_changes(
    source: Label, target: Label, error: type[Exception]
) -> None:
    learner = trained(metric(), ((0, 1),))
    before = copy.deepcopy(learner)
    with pytest.raises(error):
        learner.merge_classes(source, target)
    check_same(before, learner)


def test_the_last_two_classes_can_be_merged() -> None:
    learner = trained(metric(), ((0, 1),))
    learner.merge_classes(0, 1)
    assert learner.inspect().classes == (1,)
    assert learner.predict(examples((0,), each=2)[0]).labels == [1, 1]
    learner.learn_episode(*examples((2, 1), seed=4))
    assert set(learner.inspect().classes) == {1, 2}
