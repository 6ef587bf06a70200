"""Shares that are right as often as they say, novelty that flags as many as it says, a vote that cannot hurt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sharp_engine import Learner
from sharp_engine.prediction.calibration import Calibration, enough, fit_sureness, fit_temperature, fit_weight, sample
from tests.engine.fixtures import METRIC, metric


def drawn(count: int, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores of five classes, and classes that come as often as a softmax at this temperature says."""
    generator = torch.Generator().manual_seed(seed)
    scores = 4.0 * torch.randn(count, 5, generator=generator)
    rows = torch.multinomial(torch.softmax(scores / temperature, dim=1), 1, generator=generator).squeeze(1)
    return scores, rows


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0, 10.0])
def test_the_temperature_that_made_the_classes_is_found_again(temperature: float) -> None:
    assert fit_temperature(*drawn(4000, temperature)) == pytest.approx(temperature, rel=0.15)


def test_shares_at_the_fitted_temperature_are_right_as_often_as_they_say() -> None:
    scores, rows = drawn(6000, 2.5)
    shares = Calibration(temperature=fit_temperature(scores[:3000], rows[:3000])).shares(scores[3000:])
    top, answer = shares.max(1)
    right = answer == rows[3000:]
    for low in (0.4, 0.6, 0.8):
        some = (top >= low) & (top < low + 0.2)
        assert float(right[some].float().mean()) == pytest.approx(float(top[some].mean()), abs=0.07)


def test_the_temperature_stays_within_bounds_where_every_answer_is_right_or_none_is() -> None:
    scores = 10.0 * torch.eye(4).repeat(10, 1)
    rows = torch.arange(4).repeat(10)
    assert 0.0 < fit_temperature(scores, rows) < 3.0
    assert fit_temperature(scores, (rows + 1) % 4) > 100.0
    assert np.isfinite(fit_temperature(torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64)))


# ---- novelty ----------------------------------------------------------------------------------------------------


def test_novelty_is_the_share_of_references_that_are_less_novel() -> None:
    references = torch.arange(100, dtype=torch.float32)
    calibration = Calibration(references=references)
    novelty = calibration.novelty(-references)
    torch.testing.assert_close(novelty, (references + 1) / 101, rtol=0.0, atol=0.011)


def test_novelty_always_rises_with_distance_and_stays_within_its_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    calibration = Calibration(references=torch.randn(50, generator=generator).sort().values)
    value = torch.linspace(-20.0, 20.0, 2001)
    novelty = calibration.novelty(-value)
    assert bool((novelty[1:] >= novelty[:-1] - 1e-6).all())
    assert 0.0 <= float(novelty.min()) and float(novelty.max()) <= 1.0
    beyond = calibration.novelty(-(calibration.references[-1] + torch.tensor([0.1, 0.5, 1.0, 2.0])))
    assert bool((beyond[1:] > beyond[:-1]).all())


@pytest.mark.parametrize("references", [torch.zeros(0), torch.zeros(1), torch.zeros(30)], ids=["none", "one", "equal"])
def test_novelty_is_sound_with_few_or_equal_references(references: Tensor) -> None:
    novelty = Calibration(references=references).novelty(torch.tensor([-5.0, 0.0, 5.0]))
    assert bool(torch.isfinite(novelty).all()) and bool((novelty >= 0).all()) and bool((novelty <= 1).all())
    assert float(novelty[0]) >= float(novelty[1]) >= float(novelty[2])


CENTRES = 2.0 * torch.randn(12, 10, generator=torch.Generator().manual_seed(5))


def blobs(classes: range, each: int, seed: int) -> tuple[Tensor, list[int]]:
    generator = torch.Generator().manual_seed(seed)
    y = [label for label in classes for _ in range(each)]
    return CENTRES[y] + torch.randn(len(y), 10, generator=generator), y


@pytest.fixture(scope="module")
def knowing() -> Learner:
    learner = Learner(metric(metric=METRIC, phases=1, rest_after=1))
    for first in range(0, 10, 2):
        learner.learn_episode(*blobs(range(first, first + 2), 150, seed=first))
    return learner


def test_a_threshold_of_095_flags_about_one_in_twenty_of_what_is_known(knowing: Learner) -> None:
    novelty = knowing.predict(blobs(range(10), 100, seed=77)[0]).novelty
    assert novelty is not None
    assert 0.02 <= float(np.mean(novelty > 0.95)) <= 0.10
    assert 0.35 <= float(np.median(novelty)) <= 0.65


def test_classes_never_learned_are_more_novel(knowing: Learner) -> None:
    known = knowing.predict(blobs(range(10), 20, seed=78)[0]).novelty
    unknown = knowing.predict(blobs(range(10, 12), 100, seed=79)[0]).novelty
    assert known is not None and unknown is not None
    assert float(np.mean(known[:, None] < unknown[None, :])) > 0.9


def test_shares_and_accuracy_of_a_learner_are_about_right(knowing: Learner) -> None:
    x, y = blobs(range(10), 100, seed=80)
    answer = knowing.predict(x)
    accuracy = float(np.mean([a == b for a, b in zip(answer.labels, y, strict=True)]))
    assert float(answer.share.mean()) == pytest.approx(accuracy, abs=0.05)
    quality = knowing.quality()
    assert quality is not None and quality.accuracy == pytest.approx(accuracy, abs=0.06)


def test_a_few_answers_that_are_far_off_do_not_make_all_others_less_sure() -> None:
    scores, rows = drawn(4000, 1.0)
    off = torch.arange(0, 4000, 50)  # one in fifty is sure of a wrong class
    scores[off] = 60.0 * torch.nn.functional.one_hot((rows[off] + 1) % scores.shape[1], scores.shape[1]).float()
    shares = Calibration(temperature=fit_temperature(scores, rows)).shares(scores)
    right = float((scores.argmax(1) == rows).float().mean())
    assert float(shares.amax(1).mean()) == pytest.approx(right, abs=0.001)
    assert fit_temperature(scores, rows) < fit_sureness(scores, rows)


def test_few_classes_keep_more_representatives_than_many_and_give_them_up_as_more_come() -> None:
    settings = replace(METRIC, representatives=5, representatives_together=80)
    learner = Learner(metric(metric=settings, phases=1, rest_after=1))
    for classes, each in ((2, 40), (4, 20), (8, 10), (10, 8), (12, 6)):
        known = 0 if learner.knowledge is None else len(learner.knowledge.class_ids)
        learner.learn_episode(*blobs(range(known, classes), 60, seed=classes))
        assert learner.knowledge is not None
        assert [len(c.features) for c in learner.knowledge.episodic.classes] == [each] * classes


def test_what_the_network_never_saw_comes_first_among_representatives() -> None:
    settings = replace(METRIC, representatives_together=40)
    learner = Learner(metric(metric=settings, phases=1, rest_after=9, holdout=0.05))
    learner.learn_episode(*blobs(range(2), 100, seed=1))
    assert learner.knowledge is not None
    for memories in learner.knowledge.episodic.classes:
        assert memories.held_out.tolist() == [True] * 5 + [False] * 15


# ---- the network's weight ---------------------------------------------------------------------------------------


def test_a_vote_that_helps_has_weight_and_one_that_does_not_has_none() -> None:
    scores, rows = drawn(500, 3.0)
    truth = torch.nn.functional.one_hot(rows, 5).float()
    generator = torch.Generator().manual_seed(1)
    assert fit_weight(scores, truth, rows) > 0
    assert fit_weight(scores, 1.0 - truth, rows) == 0
    assert fit_weight(scores, torch.zeros_like(scores), rows) == 0
    assert fit_weight(scores, torch.rand(500, 5, generator=generator), rows) == 0


def test_a_weight_is_never_below_zero_and_never_costs_a_right_answer() -> None:
    for seed in range(8):
        scores, rows = drawn(120, 4.0, seed)
        generator = torch.Generator().manual_seed(seed)
        truth = torch.nn.functional.one_hot(rows, 5).float()
        votes = 0.2 * truth + torch.rand(120, 5, generator=generator)
        weight = fit_weight(scores, votes, rows)
        assert weight >= 0
        right, joined = ((s.argmax(1) == rows).sum() for s in (scores, scores + weight * votes))
        assert int(joined) >= int(right)


def test_few_representatives_are_not_enough_and_many_are_sampled() -> None:
    assert not enough(19) and enough(20)
    assert sample(2048).tolist() == list(range(2048))
    chosen = sample(5000)
    assert len(chosen) == 2048 and int(chosen[0]) == 0 and int(chosen[-1]) == 4999
    assert len(chosen.unique()) == 2048
