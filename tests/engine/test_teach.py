"""Teaching, thin episodes, and the network beside the metric: ready first, joined where it helps, resting where not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from sharp_engine import (
    Cancelled,
    EmptyEpisodeError,
    EpisodeStateError,
    InputError,
    LabelError,
    Learner,
    LearnerConfig,
    NoPositivePairError,
    NothingLearnedError,
    Progress,
    TeachReport,
)
from sharp_engine.checks import check_same, check_taught, copy_of
from sharp_engine.prediction import calibration
from sharp_engine.prediction.metric import Whitening, fit_whitening
from tests.engine.fixtures import (
    DEVICES,
    IMAGE,
    VECTOR,
    CancelAfter,
    Recorder,
    examples,
    metric,
    mlp,
    pattern,
    pictures,
    trained,
)

KINDS = pytest.mark.parametrize(("config", "shape"), [(metric(), VECTOR), (pictures(), IMAGE)], ids=["mlp", "images"])


def right(learner: Learner, classes: range, shape: tuple[int, ...] = VECTOR, noise: float = 0.3) -> float:
    x, y = examples(classes, shape, each=10, seed=1234, noise=noise)
    return float(np.mean([a == b for a, b in zip(learner.predict(x).labels, y, strict=True)]))


# ---- teaching ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_vectors_are_taught_from_the_very_first_example(device: str) -> None:
    learner = Learner(metric(device=device))
    for label in range(4):
        report = learner.teach(pattern(label, VECTOR)[None], [label])
        assert report == TeachReport(examples=1, classes=(label,), new_classes=(label,), corrections=report.corrections)
        assert learner.predict(pattern(label, VECTOR)[None]).labels == [label]
    assert learner.predict(torch.stack([pattern(label, VECTOR) for label in range(4)])).labels == [0, 1, 2, 3]
    assert learner.inspect().episodes == 0 and learner.inspect().examples_per_class == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_learner_that_was_only_taught_knows_as_much_as_its_examples_tell() -> None:
    learner = Learner(metric())
    x, y = examples(range(5), each=12, seed=3)
    for row in range(len(y)):
        learner.teach(x[row : row + 1], y[row : row + 1])
    assert right(learner, range(5)) >= 0.85


def test_a_new_class_of_one_example_is_named_beside_classes_of_many() -> None:
    learner = trained(metric(), ((0, 1), (2, 3)), each=60)
    x, y = examples((7,), each=1, seed=8, noise=0.15)
    assert learner.teach(x, y).new_classes == (7,)
    others, _ = examples((7,), each=20, seed=9, noise=0.15)
    assert learner.predict(others).labels.count(7) >= 12
    assert right(learner, range(4)) >= 0.85


def test_teaching_says_which_classes_are_new_and_how_many_examples_were_wrong() -> None:
    learner = trained(metric(), ((0, 1),), each=40)
    x, _ = examples((0,), each=3, seed=4, noise=0.1)
    assert learner.teach(x, [0, 0, 0]).corrections == 0
    report = learner.teach(x, [1, 1, 5])
    assert (report.examples, report.classes, report.new_classes) == (3, (1, 5), (5,))
    assert report.corrections >= 1


def test_images_are_refused_before_the_first_episode_and_the_learner_stays_as_it_was() -> None:
    learner = Learner(pictures())
    before = copy.deepcopy(learner)
    with pytest.raises(EpisodeStateError, match="first episode"):
        learner.teach(*examples((0,), IMAGE, each=1))
    check_same(before, learner)
    assert learner.architecture is None and learner.labels.pairs() == []
    learner.learn_episode(*examples((0,), IMAGE, each=1))
    learner.teach(*examples((1,), IMAGE, each=1))
    assert set(learner.inspect().classes) == {0, 1}


def test_a_learner_without_a_metric_refuses_to_be_taught() -> None:
    learner = trained(mlp())
    before = copy.deepcopy(learner)
    with pytest.raises(EpisodeStateError, match="metric.enabled"):
        learner.teach(*examples((0,), each=1))
    check_same(before, learner)


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (torch.zeros(2, 6), [0], LabelError),
        (torch.zeros(0, 6), [], EmptyEpisodeError),
        (torch.zeros(1, 5), [0], InputError),
        (torch.full((1, 6), float("nan")), [0], InputError),
        (torch.zeros(1, 6), ["zero"], LabelError),
        (torch.zeros(1, 6), [True], LabelError),
        (torch.zeros(1, 6, dtype=torch.int64), [0], InputError),
        ("six", [0], InputError),
    ],
    ids=["labels", "none", "shape", "nan", "kind", "bool", "dtype", "no array"],
)
def test_what_cannot_be_taught_is_refused_and_changes_nothing(x: Any, y: Any, error: type[Exception]) -> None:
    learner = trained(metric(), ((0, 1),))
    before = copy.deepcopy(learner)
    with pytest.raises(error):
        learner.teach(x, y)
    check_same(before, learner)


def test_what_is_taught_while_examples_wait_is_known_at_once_and_the_stream_goes_on() -> None:
    learner = trained(metric(), ((0, 1),))
    learner.observe(*examples((2, 3), seed=4))
    learner.teach(*examples((4,), each=1))
    assert learner.predict(examples((4,), each=1)[0]).labels == [4]
    learner.end_episode()
    assert set(learner.inspect().classes) == {0, 1, 2, 3, 4}


@KINDS
def test_teaching_in_the_middle_of_an_episode_loses_neither(config: LearnerConfig, shape: tuple[int, ...]) -> None:
    learner = trained(config, ((0, 1), (2, 3)), shape, each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 0), shape, each=24, seed=6), cancel=CancelAfter(4))
    assert 4 in learner.predict(examples((4,), shape, each=5, seed=7)[0]).labels
    lesson = examples((1, 5, 4), shape, each=2, seed=8, noise=0.6)
    report = learner.teach(*lesson)
    assert report.new_classes == (5,)
    check_taught(learner, *lesson)
    assert 4 in learner.predict(examples((4,), shape, each=5, seed=7)[0]).labels
    learner.resume_episode()
    assert learner.inspect().examples_per_class == {0: 48, 1: 26, 2: 24, 3: 24, 4: 26, 5: 2}


def test_teaching_from_an_observer_loses_nothing() -> None:
    learner = trained(metric(), ((0, 1),), each=24)
    lesson = examples((7,), each=2, seed=8)

    def teach(progress: Progress) -> None:
        if progress.event == "phase-ended" and progress.phase == 1:
            learner.teach(*lesson)

    learner.learn_episode(*examples((2, 3), each=24, seed=2), observer=teach)
    assert learner.inspect().examples_per_class == {0: 24, 1: 24, 2: 24, 3: 24, 7: 2}
    check_taught(learner, *lesson)


def test_abandoning_an_episode_keeps_what_was_taught_meanwhile() -> None:
    learner = trained(metric(), ((0, 1),), each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((2, 3), each=24, seed=2), cancel=CancelAfter(3))
    lesson = examples((7,), each=2, seed=8)
    learner.teach(*lesson)
    learner.abandon_episode()
    assert learner.inspect().examples_per_class == {0: 24, 1: 24, 7: 2}
    check_taught(learner, *lesson)


# ---- examples that count and correct nothing --------------------------------------------------------------------


@KINDS
def test_examples_that_correct_nothing_count_at_once(config: LearnerConfig, shape: tuple[int, ...]) -> None:
    learner = trained(config, ((0, 1),), shape, each=30)
    x, y = examples((1, 2), shape, each=25, seed=4)
    report = learner.teach(x, y, correct=False)
    assert report == TeachReport(examples=50, classes=report.classes, new_classes=(2,), corrections=0)
    assert learner.inspect().examples_per_class == {0: 30, 1: 55, 2: 25}
    assert learner.knowledge is not None
    held = {c.class_id: len(c.features) for c in learner.knowledge.episodic.classes}
    assert held[learner.labels.find(2)] == 25  # all of them: there are few classes
    assert right(learner, range(3), shape) >= 0.9


def test_contradictions_that_correct_nothing_leave_no_correction_and_keep_those_there_are() -> None:
    learner = trained(metric(), ((0, 1), (2, 3)), each=40)
    lesson = examples((0,), each=2, seed=4, noise=0.1)[0], [3, 3]
    learner.teach(*lesson)
    assert learner.knowledge is not None
    kept = learner.knowledge.episodic.correction_ids
    assert kept
    x, y = examples(range(4), each=8, seed=5, noise=0.8)
    assert learner.teach(x, y, correct=False).corrections == 0
    assert learner.knowledge.episodic.correction_ids == kept
    check_taught(learner, *lesson)


def test_a_flood_of_examples_makes_the_metric_anew_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    from sharp_engine.training import knowledge

    learner = trained(metric(), ((0, 1), (2, 3)), each=100)
    made = []

    def counted(*arguments: Any) -> Whitening:
        made.append(arguments)
        return fit_whitening(*arguments)

    monkeypatch.setattr(knowledge, "fit_whitening", counted)
    x, y = examples(range(4), each=16, seed=9)
    for _ in range(40):
        learner.teach(x, y, correct=False)
        learner.predict(x[:2])
    assert sum(learner.inspect().examples_per_class.values()) == 400 + 40 * 64
    assert 5 <= len(made) <= 20
    check_same(copy_of(learner), learner)


# ---- thin episodes ----------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("classes", [(0,), (0, 1, 2)], ids=["one class", "no pair"])
@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
def test_an_episode_too_thin_for_the_network_is_taught(
    config: LearnerConfig, shape: tuple[int, ...], classes: tuple[int, ...], known: bool
) -> None:
    learner = trained(config, ((5, 6),) if known else (), shape)
    each = 8 if len(classes) == 1 else 1
    x, y = examples(classes, shape, each=each, seed=3)
    report = learner.learn_episode(x, y)
    assert (report.losses, set(report.classes), report.examples) == ((), set(classes), len(y))
    assert set(learner.inspect().classes) == {*classes, *((5, 6) if known else ())}
    assert learner.predict(x).labels == y
    assert learner.inspect().episodes == 1 + known


def test_an_episode_of_one_example_is_taught_and_the_network_stays_as_it_was() -> None:
    learner = trained(metric(), ((0, 1),))
    network = learner.network.copy()
    learner.observe(*examples((2,), each=1))
    learner.end_episode()
    for was, now in zip(network.layers, learner.network.layers, strict=True):
        assert torch.equal(was.weight, now.weight) and torch.equal(was.ranks, now.ranks)
    assert learner.network_episodes == 1 and learner.inspect().episodes == 2


def test_without_a_metric_a_thin_episode_is_refused_as_before() -> None:
    with pytest.raises(NoPositivePairError):
        Learner(mlp()).learn_episode(*examples((0, 1), each=1))


def test_more_classes_of_one_example_than_replay_has_room_for_are_taught() -> None:
    learner = Learner(metric(stm_capacity=3))
    learner.learn_episode(*examples(range(6), each=1))
    assert len(learner.inspect().classes) == 6


def test_an_episode_that_the_network_cannot_learn_is_known_all_the_same() -> None:
    learner = Learner(pictures())
    report = learner.learn_episode(torch.zeros(30, *IMAGE), [0] * 15 + [1] * 15)
    assert report.losses == () and learner.running is None
    learner.learn_episode(*examples((2, 3), IMAGE))
    assert set(learner.inspect().classes) == {0, 1, 2, 3}
    check_same(copy_of(learner), learner)


# ---- the metric is ready first ----------------------------------------------------------------------------------


@KINDS
def test_the_metric_is_ready_before_the_first_phase_and_answers_right_already(
    config: LearnerConfig, shape: tuple[int, ...]
) -> None:
    learner = trained(config, ((0, 1),), shape, each=30)
    reported: list[str] = []
    accuracy: dict[str, float] = {}

    def watch(progress: Progress) -> None:
        reported.append(progress.event)
        if progress.event in ("episode-started", "metric-ready", "phase-ended"):
            accuracy[progress.event] = right(learner, range(4), shape)

    learner.learn_episode(*examples((2, 3), shape, each=30, seed=2), observer=watch)
    assert reported.index("metric-ready") < reported.index("phase-started")
    assert reported.count("metric-ready") == 1
    assert accuracy["episode-started"] <= 0.5 < 0.75 <= accuracy["metric-ready"]
    assert accuracy["phase-ended"] == accuracy["metric-ready"]


def test_an_abandoned_episode_is_as_if_it_had_never_begun() -> None:
    for sequence in ((), ((0, 1),)):
        learner, before = (trained(metric(), sequence, each=24) for _ in range(2))
        before.build(VECTOR) if before.architecture is None else None
        with pytest.raises(Cancelled):
            learner.learn_episode(*examples((2, 3), each=24, seed=2), cancel=CancelAfter(4))
        assert right(learner, range(2, 4)) >= 0.75
        learner.abandon_episode()
        before.labels.next_id = learner.labels.next_id
        check_same(before, learner)
        if sequence:
            assert set(learner.predict(examples((2, 3), each=5)[0]).labels) <= {0, 1}
        else:
            with pytest.raises(NothingLearnedError):
                learner.predict(examples((2, 3), each=5)[0])


# ---- nearest memories -------------------------------------------------------------------------------------------


@KINDS
def test_the_nearest_memory_is_of_the_class_that_is_answered_and_distances_rise(
    config: LearnerConfig, shape: tuple[int, ...]
) -> None:
    learner = trained(config, ((0, 1), (2, 3), (0, 4)), shape)
    learner.teach(*examples((1, 5), shape, each=4, seed=5, noise=0.9))
    x, _ = examples(range(6), shape, each=8, seed=6, noise=0.7)
    answer = learner.predict(x, top=6, memories=12)
    for row, label in enumerate(answer.labels):
        assert answer.memory_labels[row][0] == label == answer.top_labels[row][0]
    assert (np.diff(answer.memory_distance, axis=1) >= 0).all()
    assert (np.diff(answer.top_distance, axis=1) >= -1e-5).all()
    assert (np.diff(answer.top_share, axis=1) <= 1e-6).all()
    np.testing.assert_allclose(answer.top_share.sum(1), 1.0, rtol=1e-4)
    np.testing.assert_allclose(answer.memory_distance[:, 0], answer.distance, rtol=1e-4, atol=1e-5)
    assert set(answer.memory_episode.flatten().tolist()) <= {0, 1, 2, 3}


def test_more_memories_than_there_are_gives_all_there_are() -> None:
    learner = trained(metric(), ((0, 1),), each=5)
    answer = learner.predict(examples((0,), each=2)[0], memories=1000)
    assert learner.knowledge is not None
    assert answer.memory_distance.shape == (2, 2 + learner.knowledge.episodic.entries)


# ---- rest -------------------------------------------------------------------------------------------------------


def test_a_network_that_adds_nothing_rests_and_learns_again_when_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    from sharp_engine.training import knowledge

    monkeypatch.setattr(knowledge, "fit_weight", lambda *_: 0.0)
    learner = Learner(metric(rest_after=2))
    for number in range(2):
        assert not learner.inspect().network_resting
        assert learner.learn_episode(*examples((2 * number, 2 * number + 1), each=60, seed=number)).losses
    assert learner.inspect().network_resting and learner.inspect().network_weight == 0.0
    check_same(copy_of(learner), learner)
    network = learner.network.copy()
    recorder = Recorder()
    assert learner.learn_episode(*examples((4, 5), each=60, seed=2), observer=recorder).losses == ()
    assert [reported.event for reported in recorder.reported] == ["episode-started", "metric-ready", "episode-learned"]
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(network.layers, learner.network.layers, strict=True))
    assert right(learner, range(6)) >= 0.75
    learner.wake_network()
    assert not learner.inspect().network_resting
    assert learner.learn_episode(*examples((6, 7), each=60, seed=3)).losses
    assert learner.network_episodes == 3 and learner.inspect().episodes == 4


def test_a_vote_that_helps_joins_and_keeps_the_network_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    from sharp_engine.training import knowledge

    weights = iter([0.0, 3.0, 0.0, 0.0])
    monkeypatch.setattr(knowledge, "fit_weight", lambda *_: next(weights))
    learner = Learner(metric(rest_after=2))
    for number in range(4):
        learner.learn_episode(*examples((2 * number, 2 * number + 1), each=60, seed=number))
        assert learner.inspect().network_resting == (number == 3)
        if number == 1:
            assert learner.inspect().network_weight == 3.0
            lesson = examples(range(4), each=3, seed=9, noise=0.8)
            learner.teach(*lesson)
            check_taught(learner, *lesson)  # corrections outvote the network
            check_same(copy_of(learner), learner)
            x, _ = examples(range(4), each=5, seed=10)
            answer = learner.predict(x, memories=3)
            assert [row[0] for row in answer.memory_labels] == answer.labels


def test_the_weight_is_fitted_only_on_enough_examples_that_the_network_never_saw() -> None:
    learner = trained(metric(holdout=0.0), ((0, 1), (2, 3)), each=60)
    assert learner.inspect().network_weight is None and not learner.inspect().network_resting
    learner = trained(metric(holdout=0.5), ((0, 1), (2, 3)), each=60)
    weight = learner.inspect().network_weight
    assert weight is not None and weight >= 0 and calibration.enough(20)


# ---- forgetting -------------------------------------------------------------------------------------------------


@KINDS
def test_a_forgotten_class_is_gone_from_every_memory_and_the_others_answer_as_before(
    config: LearnerConfig, shape: tuple[int, ...]
) -> None:
    learner = trained(config, ((0, 1), (2, 3)), shape, each=30)
    learner.teach(*examples((1, 4), shape, each=3, seed=5, noise=0.8))
    x, y = examples((0, 2, 3), shape, each=12, seed=6)
    before = learner.predict(x).labels
    class_id = learner.labels.find(1)
    learner.forget(1)
    assert learner.knowledge is not None
    semantic, episodic = learner.knowledge.semantic, learner.knowledge.episodic
    assert class_id not in semantic.class_ids and class_id not in semantic.taught_ids
    assert class_id not in episodic.correction_ids and class_id not in [c.class_id for c in episodic.classes]
    assert set(learner.inspect().classes) == set(learner.inspect().examples_per_class) == {0, 2, 3, 4}
    answer = learner.predict(x, top=9, memories=99)
    assert 1 not in {label for row in (*answer.top_labels, *answer.memory_labels) for label in row}
    same = sum(a == b for a, b in zip(answer.labels, before, strict=True) if b != 1)
    assert same >= 0.95 * sum(b != 1 for b in before)
    check_same(copy_of(learner), learner)
    learner.learn_episode(*examples((1, 5), shape, seed=8))
    assert learner.inspect().examples_per_class[1] == 20


@pytest.mark.parametrize("label", [0, 4], ids=["old", "of the episode"])
@KINDS
def test_a_class_is_forgotten_in_the_middle_of_an_episode(
    config: LearnerConfig, shape: tuple[int, ...], label: int
) -> None:
    learner = trained(config, ((0, 1), (2, 3)), shape, each=24)
    with pytest.raises(Cancelled):
        learner.learn_episode(*examples((4, 5, 6), shape, each=24, seed=6), cancel=CancelAfter(5))
    learner.forget(label)
    x, _ = examples(range(7), shape, each=4, seed=7)
    assert label not in {name for row in learner.predict(x, top=9).top_labels for name in row}
    assert 5 in learner.predict(x).labels
    loaded = copy_of(learner)
    for one in (learner, loaded):
        one.resume_episode()
        assert set(one.inspect().classes) == set(range(7)) - {label}
    check_same(loaded, learner)


def test_after_the_last_class_is_forgotten_nothing_is_named_and_learning_goes_on() -> None:
    learner = Learner(metric())
    learner.teach(*examples((0, 1), each=2))
    learner.forget(0)
    learner.forget(1)
    with pytest.raises(NothingLearnedError):
        learner.predict(torch.zeros(1, *VECTOR))
    check_same(copy_of(learner), learner)
    learner.teach(*examples((2,), each=1))
    assert learner.predict(torch.zeros(1, *VECTOR)).labels == [2]


# ---- inspection -------------------------------------------------------------------------------------------------


def test_inspection_tells_the_bytes_of_every_memory() -> None:
    learner = Learner(metric())
    assert learner.inspect().semantic_bytes == learner.inspect().episodic_bytes == 0
    learner.learn_episode(*examples((0, 1), each=30))
    first = learner.inspect()
    learner.learn_episode(*examples((0, 1), each=30, seed=2))
    again = learner.inspect()
    assert first.semantic_bytes == again.semantic_bytes > 0 and again.episodic_bytes > 0
    assert again.quality == learner.quality() is not None
    assert again.features_bytes == 2 * 6 * 4
