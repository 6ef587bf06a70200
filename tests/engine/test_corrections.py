"""Corrections: every one of them right, the newest above all, and everything else as it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine import Learner
from sharp_engine.checks import check_taught
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.prediction.corrections import Nearness, fit_corrections
from tests.engine.fixtures import METRIC, change, metric
from tests.engine.test_calibration import CENTRES, blobs

WIDTH, GAP = 0.1, 2.0


def made(count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    around = torch.randn(count, 20, generator=generator)
    scores = 5.0 * torch.randn(count, 6, generator=generator)
    return around, torch.randint(6, (count,), generator=generator), scores


@pytest.mark.parametrize("count", [1, 2, 30, 200])
def test_every_correction_wins_by_the_gap(count: int) -> None:
    around, rows, scores = made(count)
    bent = fit_corrections(Nearness.of(around, None), rows, scores, WIDTH, GAP).bend(scores, around)
    own = F.one_hot(rows, 6).bool()
    lead = bent[own] - bent.masked_fill(own, -torch.inf).amax(1)
    assert float(lead.min()) >= 0.9 * GAP


def test_a_bend_is_that_of_the_formula() -> None:
    around, rows, scores = made(12)
    corrections = fit_corrections(Nearness.of(around, None), rows, scores, WIDTH, GAP)
    x, _, own = made(5, seed=1)
    x = around[:5] + 0.3 * x
    wanted = own.clone()
    for i in range(5):
        for direction, row, margin in zip(corrections.directions, corrections.rows, corrections.margins, strict=True):
            cosine = float(F.cosine_similarity(x[i], direction, dim=0))
            wanted[i, row] += float(margin) * torch.tensor((cosine - 1.0) / WIDTH).exp()
    torch.testing.assert_close(corrections.bend(own, x), wanted, rtol=1e-4, atol=1e-4)


def test_a_correction_that_is_right_anyway_bends_nothing() -> None:
    around, rows, _ = made(10)
    scores = 10.0 * F.one_hot(rows, 6).float()
    corrections = fit_corrections(Nearness.of(around, None), rows, scores, WIDTH, GAP)
    assert len(corrections.margins) == 0
    assert corrections.bend(scores, around) is scores


def test_what_is_not_like_a_correction_stays_as_it_was() -> None:
    around, rows, scores = made(30)
    x, _, own = made(300, seed=3)
    corrections = fit_corrections(Nearness.of(around, None), rows, scores, WIDTH, GAP)
    moved = (corrections.bend(own, x) - own).abs()
    assert float(moved.mean()) < 0.01 * float(corrections.margins.mean())


@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_of_corrections_that_contradict_each_other_the_newest_has_the_last_word(count: int, apart: float) -> None:
    around, _, scores = made(1)
    noise = torch.randn(count, 20, generator=torch.Generator().manual_seed(9))
    around, scores = around + apart * noise, scores.expand(count, 6).clone()
    for rows in (torch.arange(count), torch.arange(count).flip(0)):
        bent = fit_corrections(Nearness.of(around, None), rows, scores, WIDTH, GAP).bend(scores, around)
        assert int(bent[-1].argmax()) == int(rows[-1])


# ---- in a learner -----------------------------------------------------------------------------------------------


def knowing(**options: int) -> Learner:
    config = metric(metric=METRIC, phases=1, rest_after=1)
    learner = Learner(change(config, **options))
    for first in range(0, 10, 5):
        learner.learn_episode(*blobs(range(first, first + 5), 60, seed=first))
    return learner


def wrong_ones(learner: Learner, count: int) -> tuple[Tensor, list[int]]:
    x, y = blobs(range(10), 400, seed=50)
    x = x + 0.8 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    answers = learner.predict(x).labels
    wrong = [i for i, (a, b) in enumerate(zip(answers, y, strict=True)) if a != b][:count]
    assert len(wrong) == count
    return x[wrong], [y[i] for i in wrong]


def test_corrections_are_all_right_and_nothing_else_gets_worse() -> None:
    learner = knowing()
    x, y = blobs(range(10), 60, seed=60)
    before = sum(a == b for a, b in zip(learner.predict(x).labels, y, strict=True)) / len(y)
    corrected = wrong_ones(learner, 20)
    for _ in range(2):
        learner.teach(*corrected)
        check_taught(learner, *corrected)
    after = sum(a == b for a, b in zip(learner.predict(x).labels, y, strict=True)) / len(y)
    assert after >= before - 0.02


def test_corrections_stay_right_when_other_classes_come() -> None:
    learner = knowing()
    corrected = wrong_ones(learner, 10)
    learner.teach(*corrected)
    assert learner.knowledge is not None
    kept = learner.knowledge.episodic.corrections
    s = learner.preprocessor(corrected[0])
    rows = [i for i in range(10) if bool((kept == s[i]).all(1).any())]
    assert rows
    learner.learn_episode(*blobs(range(10, 12), 60, seed=61))
    check_taught(learner, corrected[0][rows], [corrected[1][i] for i in rows])


def test_the_same_example_taught_again_as_another_class_is_that_class() -> None:
    learner = knowing()
    x = CENTRES[:1]
    for label in (3, 4, 0, 4, 7):
        report = learner.teach(x, [label])
        assert learner.predict(x).labels == [label]
        assert report.corrections <= 1
    assert learner.knowledge is not None
    assert learner.knowledge.episodic.correction_ids == (learner.labels.find(7),)


def test_in_one_lesson_the_last_label_of_an_example_counts() -> None:
    learner = knowing()
    learner.teach(CENTRES[[0, 0, 0]], [3, 5, 9])
    assert learner.predict(CENTRES[:1]).labels == [9]


@pytest.mark.parametrize("apart", [0.3, 0.1, 0.03, 0.01, 0.003, 0.001])
def test_a_correction_takes_the_answer_from_no_other_example_of_the_lesson_silently(apart: float) -> None:
    """Nearly the same example as two classes: both right, or both kept as corrections and the later one right."""
    for seed in range(5):
        learner = knowing()
        near = CENTRES[:1] + apart * torch.randn(1, 10, generator=torch.Generator().manual_seed(seed))
        learner.teach(torch.cat((CENTRES[:1], near)), [0, 3])
        answers = learner.predict(torch.cat((CENTRES[:1], near))).labels
        assert answers[1] == 3
        assert learner.knowledge is not None
        assert answers[0] == 0 or len(learner.knowledge.episodic.correction_ids) == 2


def test_the_oldest_corrections_go_when_there_are_too_many() -> None:
    learner = knowing(corrections=5)
    x, y = wrong_ones(learner, 12)
    for row in range(12):
        learner.teach(x[row : row + 1], y[row : row + 1])
        check_taught(learner, x[row : row + 1], y[row : row + 1])
    assert learner.knowledge is not None and len(learner.knowledge.episodic.correction_ids) <= 5


def test_corrections_of_a_class_go_with_it() -> None:
    memory = EpisodicMemory(corrections=torch.zeros(0, 3)).correct(torch.eye(3), (4, 5, 4), 2, 10)
    after = memory.forget(4)
    assert after.correction_ids == (5,) and torch.equal(after.corrections, torch.eye(3)[1:2])
    assert memory.entries == 3 and after.entries == 1 and after.nbytes == 12
