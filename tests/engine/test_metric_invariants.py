"""What must always hold of the learned metric (algorithm.md, 8 to 10), for random streams; and of resuming with it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sharp_engine import Cancelled, Learner, LearnerConfig, Progress
from sharp_engine.checks import (
    check_never_loses,
    check_order,
    check_own_means,
    check_resume,
    check_same,
    check_taught,
    copy_of,
    run_all,
)
from sharp_engine.labels import Label
from tests.engine.fixtures import DEVICES, IMAGE, VECTOR, CancelAfter, change, examples, metric, pictures, trained
from tests.engine.watched import learn_watched

QUIET = {"phases": 1, "rest_after": 1}
"""The network has no part in these: one phase, and rest as soon as may be."""

CLASSES = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)
KINDS = pytest.mark.parametrize(("config", "shape"), [(metric(), VECTOR), (pictures(), IMAGE)], ids=["mlp", "images"])


def begun(config: LearnerConfig, shape: tuple[int, ...] = VECTOR, each: int = 12) -> Learner:
    """A learner whose stable features are settled, and that knows two classes."""
    return trained(config, ((0, 1),), shape, each)


# ---- 8: order ---------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(CLASSES, min_size=1, max_size=4), st.integers(1, 9), st.randoms(use_true_random=False), st.data())
def test_any_order_in_any_episodes_gives_the_same_semantic_memory(
    sequence: list[list[int]], each: int, shuffle: st.DataObject, data: st.DataObject
) -> None:
    parts = [examples(classes, each=each, seed=7 + number) for number, classes in enumerate(sequence)]
    x, y = torch.cat([x for x, _ in parts]), [label for _, labels in parts for label in labels]
    one, other = begun(metric(**QUIET)), begun(metric(**QUIET))
    for part, labels in parts:
        one.learn_episode(part, labels)
    order = list(range(len(y)))
    shuffle.shuffle(order)  # type: ignore[attr-defined]
    ends = sorted(data.draw(st.sets(st.integers(1, len(y)), max_size=3)) | {len(y)})
    for begin, end in zip([0, *ends], ends, strict=False):
        rows = order[begin:end]
        arrived = x[rows], [y[i] for i in rows]
        if data.draw(st.booleans()):
            other.teach(*arrived)
        else:
            other.learn_episode(*arrived)
    check_order(one, other)


@settings(max_examples=15)
@given(st.lists(CLASSES, min_size=1, max_size=4), st.integers(1, 9))
def test_the_mean_of_a_class_changes_by_its_own_examples_only(sequence: list[list[int]], each: int) -> None:
    learner = begun(metric(**QUIET))
    for number, classes in enumerate(sequence):
        before = copy.deepcopy(learner)
        learner.learn_episode(*examples(classes, each=each, seed=number))
        check_own_means(before, learner, set(classes))
        before = copy.deepcopy(learner)
        learner.teach(*examples(classes[:1], each=1, seed=90 + number))
        check_own_means(before, learner, set(classes[:1]))


# ---- 9: a class that comes back never loses ---------------------------------------------------------------------


@settings(max_examples=20)
@given(st.lists(st.tuples(CLASSES, st.integers(1, 30), st.booleans()), min_size=1, max_size=5))
def test_a_class_that_comes_back_never_loses_what_was_known_of_it(arrivals: list[tuple[list[int], int, bool]]) -> None:
    learner = begun(metric(**QUIET))
    for number, (classes, each, taught) in enumerate(arrivals):
        x, y = examples(classes, each=each, seed=number)
        before = copy.deepcopy(learner)
        learner.teach(x, y) if taught else learner.learn_episode(x, y)
        check_never_loses(before, learner, x, y)


def test_a_class_of_few_that_comes_back_as_one_example_is_still_known() -> None:
    learner = trained(metric(), ((0, 1), (2, 3)), each=40)
    x, y = examples((0,), each=20, seed=55)
    known = learner.predict(x).labels.count(0)
    learner.learn_episode(*examples((0,), each=1, seed=9))
    learner.learn_episode(*examples((0, 2), each=1, seed=10))
    assert learner.predict(x).labels.count(0) >= known
    assert learner.inspect().examples_per_class == {0: 42, 1: 40, 2: 41, 3: 40}


# ---- 10: a correction is right as soon as it is taught ----------------------------------------------------------


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_what_is_taught_is_right_at_once(lessons: list[tuple[int, int]], size: int, weighed: bool) -> None:
    """Right or wrong, near or far, once or several times, one by one or together."""
    learner = begun(metric(**QUIET))
    if weighed:
        learner.learn_episode(*examples((2, 3), each=12, seed=3))
    x, _ = examples(range(5), each=9, seed=8, noise=0.6)
    for begin in range(0, len(lessons), size):
        now = lessons[begin : begin + size]
        taught, labels = x[[row for row, _ in now]], [label for _, label in now]
        learner.teach(taught, labels)
        check_taught(learner, taught, labels)
        check_taught(copy_of(learner), taught, labels)


@pytest.mark.parametrize("device", DEVICES)
@KINDS
def test_what_is_taught_is_right_at_once_on_every_device(
    config: LearnerConfig, shape: tuple[int, ...], device: str
) -> None:
    learner = begun(change(config, device=device), shape)
    x, y = examples((0, 1, 2), shape, each=6, seed=4, noise=0.5)
    wrong: list[Label] = [(label + 1) % 3 for label in y if isinstance(label, int)]
    for labels in (y, wrong, y):
        learner.teach(x, labels)
        check_taught(learner, x, labels)


# ---- 1 to 7 hold with a metric, too -----------------------------------------------------------------------------


@KINDS
def test_the_other_invariants_hold_beside_a_learned_metric(config: LearnerConfig, shape: tuple[int, ...]) -> None:
    learn_watched(config, shape, [[0, 1], [2, 3], [4], [0, 4], [5, 1]])


@KINDS
def test_run_all_names_every_invariant_of_a_learned_metric_and_changes_nothing(
    config: LearnerConfig, shape: tuple[int, ...]
) -> None:
    learner = trained(config, ((0, 1), (2, 3)), shape)
    before = copy.deepcopy(learner)
    results = run_all(learner)
    assert {name.split(":")[0] for name, _ in results} >= set("123456789") | {"10"}
    assert [wrong for _, wrong in results] == [None] * len(results)
    check_same(before, learner)


# ---- 6: resumed is never interrupted ----------------------------------------------------------------------------


def check_same_answers(one: Learner, other: Learner, shape: tuple[int, ...]) -> None:
    x, _ = examples(range(6), shape, each=2, seed=77)
    answers = [learner.predict(x, top=3, memories=4) for learner in (one, other)]
    for name in ("share", "distance", "novelty", "top_share", "memory_distance", "memory_episode"):
        assert (getattr(answers[0], name) == getattr(answers[1], name)).all(), name
    assert answers[0].labels == answers[1].labels


@pytest.mark.parametrize("device", DEVICES)
@KINDS
def test_check_resume_holds_between_any_two_steps(config: LearnerConfig, shape: tuple[int, ...], device: str) -> None:
    learner = trained(change(config, device=device), ((0, 1), (2, 3)), shape, each=24)
    now = examples((4, 0), shape, each=24, seed=6)
    few = examples((0, 5), shape, each=2, seed=7, noise=0.8)
    check_resume(learner, lambda copy: copy.learn_episode(*now))
    learner.teach(*few)
    assert learner.knowledge is not None and learner.knowledge.semantic.taught_ids  # they wait to be summed up
    check_resume(learner, lambda copy: copy.teach(*examples((5, 1), shape, each=2, seed=8)))
    check_resume(learner, lambda copy: copy.learn_episode(*now))
    for steps in (0, 1, 2, 4, 6):
        begun = copy.deepcopy(learner)
        with pytest.raises(Cancelled):
            begun.learn_episode(*now, cancel=CancelAfter(steps))
        check_resume(begun, lambda copy: copy.resume_episode())
        begun.teach(*examples((5, 2), shape, each=2, seed=9, noise=0.8))
        check_resume(begun, lambda copy: copy.resume_episode())
    learner.observe(*now)
    check_resume(learner, lambda copy: copy.end_episode())


@settings(max_examples=12)
@given(st.lists(st.tuples(CLASSES, st.integers(1, 25), st.booleans(), st.booleans()), min_size=1, max_size=4))
def test_a_learner_saved_between_any_calls_goes_on_as_if_never_interrupted(
    calls: list[tuple[list[int], int, bool, bool]],
) -> None:
    learner, saved = begun(metric(**QUIET)), begun(metric(**QUIET))
    for number, (classes, each, taught, interrupted) in enumerate(calls):
        x, y = examples(classes, each=each, seed=number)
        for one in (learner, saved):
            one.teach(x[:3], y[:3]) if taught else one.learn_episode(x, y)
        if interrupted:
            saved = copy_of(saved)
    check_same(learner, saved)
    check_same_answers(learner, saved, VECTOR)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(CLASSES, st.sampled_from([1, 2, 5, 40, 90]), st.booleans(), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_taught_is_the_same_to_the_bit_saved_and_asked_or_not(
    calls: list[tuple[list[int], int, bool, bool, bool]],
) -> None:
    """One learner is only taught; another is asked for answers in between, saved and loaded."""
    learner, other = begun(metric(**QUIET)), begun(metric(**QUIET))
    for number, (classes, each, correct, saved, asked) in enumerate(calls):
        lesson = examples(classes, each=each, seed=number, noise=0.6)
        for one in (learner, other):
            one.teach(*lesson, correct=correct)
        if asked:
            other.predict(lesson[0])
        if saved:
            other = copy_of(other)
    check_same(learner, other)
    check_same_answers(learner, other, VECTOR)


@KINDS
def test_a_learner_saved_by_its_observer_goes_on_as_if_never_interrupted(
    config: LearnerConfig, shape: tuple[int, ...], tmp_path: Path
) -> None:
    learner = trained(config, ((0, 1),), shape, each=24)
    saved: list[Path] = []

    def save(progress: Progress) -> None:
        if progress.event in ("metric-ready", "phase-ended", "episode-learned"):
            saved.append(tmp_path / f"{len(saved)}.safetensors")
            learner.save(saved[-1])

    learner.learn_episode(*examples((2, 0), shape, each=24, seed=9), observer=save)
    assert len(saved) == 4
    for path in saved:
        loaded = Learner.load(path)
        if loaded.running is not None:
            loaded.resume_episode()
        check_same(loaded, learner)
        check_same_answers(loaded, learner, shape)


@KINDS
def test_the_same_seed_learns_the_same_and_another_seed_does_not(config: LearnerConfig, shape: tuple[int, ...]) -> None:
    one, same, other = (trained(change(config, seed=seed), ((0, 1), (2,)), shape) for seed in (3, 3, 4))
    check_same(one, same)
    check_same_answers(one, same, shape)
    assert one.knowledge is not None and other.knowledge is not None
    assert not torch.equal(one.knowledge.semantic.means, other.knowledge.semantic.means)
