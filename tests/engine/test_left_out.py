"""Leaving an example out is what it says: against the definition, and against metrics that never learned it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.prediction.left_out import leave_out
from sharp_engine.prediction.metric import Metric, Whitening, whitened_means
from tests.engine.test_metric import FLOOR, learned, sample, whiten

COUNTS = pytest.mark.parametrize(
    ("counts", "dimensions", "spread"),
    [([40, 30, 30], 12, 1.0), ([10] * 5, 12, 1.0), ([6] * 10, 20, 1.2), ([2] * 10, 10, 1.5), ([5, 5, 40, 3], 10, 1.0)],
    ids=["many", "ten each", "six each", "two each", "uneven"],
)


def made(phi: Tensor, y: Tensor, noise: float = 1.0) -> tuple[Metric, Whitening]:
    memory = learned(phi, y)
    whitening = whiten(memory)
    return Metric.of(whitened_means(memory, whitening), FLOOR, noise), whitening


def literal(metric: Metric, whitening: Whitening, v: Tensor, row: int) -> Tensor:
    """Scores of one whitened example v of class `row` over all directions, with its part of the covariance gone."""
    v, centre, axes = v.double(), metric.frame.centre.double(), metric.frame.axes.double()
    axes = F.normalize(axes, dim=0)
    x = (v - centre) / metric.noise**0.5  # (dimensions,)
    means = metric.places.double() @ axes.T  # (classes, dimensions)
    counts = metric.counts.clone()
    deviation = x - means[row]
    n = float(counts[row])
    covariance = torch.eye(len(v), dtype=torch.float64)
    covariance -= whitening.leverage * metric.noise * n / (n - 1) * torch.outer(deviation, deviation)
    means[row] -= deviation / (n - 1)
    counts[row] -= 1
    values, vectors = torch.linalg.eigh(covariance)
    again = vectors @ torch.diag(values.rsqrt()) @ vectors.T
    x, means = again @ x, means @ again
    beyond = deviation - axes @ (axes.T @ deviation)
    basis = torch.cat((axes, F.normalize(beyond, dim=0)[:, None]), dim=1)
    scores = torch.zeros(len(means), dtype=torch.float64)
    for c, mean in enumerate(means):
        for a in range(basis.shape[1]):
            own = a < axes.shape[1]
            count = counts[c] if own else metric.counts.max()
            psi = float(metric.frame.psi[a]) if own else metric.frame.least
            at, place = x @ basis[:, a], mean @ basis[:, a] * count * psi / (1 + count * psi)
            variance = 1 + psi / (1 + count * psi)
            scores[c] += 0.5 * (at.square() / (1 + psi) - (at - place).square() / variance)
            scores[c] += 0.5 * torch.log((1 + psi) / variance) if own else 0.0
    return scores + metric.evening


@COUNTS
@pytest.mark.parametrize("noise", [1.0, 1.7])
def test_scores_are_those_of_the_definition(counts: list[int], dimensions: int, spread: float, noise: float) -> None:
    phi, y, _, _ = sample(counts, dimensions, spread)
    metric, whitening = made(phi, y, noise)
    v = whitening(phi)
    left = leave_out(metric, metric.coordinates(v), y, whitening.leverage)
    for row in range(0, len(y), 7):
        wanted = literal(metric, whitening, v[row], int(y[row]))
        torch.testing.assert_close(left.scores[row].double(), wanted, rtol=1e-3, atol=1e-3)


@COUNTS
def test_an_example_left_out_scores_as_it_would_if_it_had_never_been_learned(
    counts: list[int], dimensions: int, spread: float
) -> None:
    phi, y, _, _ = sample(counts, dimensions, spread)
    metric, whitening = made(phi, y)
    at = metric.coordinates(whitening(phi))
    seen, guessed = metric.scores(at.z), leave_out(metric, at, y, whitening.leverage).scores
    really = torch.zeros_like(seen)
    for row in range(len(y)):
        rest = torch.arange(len(y)) != row
        its_metric, its_whitening = made(phi[rest], y[rest])
        really[row] = its_metric.scores(its_metric.coordinates(its_whitening(phi[row : row + 1])).z)[0]
    # What decides is how far the own class is ahead of the others.
    own = F.one_hot(y, len(counts)).bool()

    def lead(scores: Tensor) -> Tensor:
        return scores[own] - scores.masked_fill(own, -torch.inf).amax(1)

    optimism = float((lead(seen) - lead(really)).mean())
    assert optimism > 0.2
    assert abs(float((lead(guessed) - lead(really)).mean())) < 0.3 * optimism
    assert float((lead(guessed) - lead(really)).abs().mean()) < 0.35 * float((lead(seen) - lead(really)).abs().mean())
    right = [int((scores.argmax(1) == y).sum()) for scores in (guessed, really)]
    assert abs(right[0] - right[1]) <= 1


def test_the_noise_of_examples_left_out_is_that_of_examples_never_seen() -> None:
    phi, y, centres, mix = sample([15] * 8, 20, spread=1.0)
    metric, whitening = made(phi, y)
    noise = leave_out(metric, metric.coordinates(whitening(phi)), y, whitening.leverage).noise
    generator = torch.Generator().manual_seed(1)
    fresh = whitening(centres[y] + torch.randn(len(y), 20, generator=generator) @ mix)
    unseen = float((metric.coordinates(fresh).z - metric.places[y]).square().mean())
    seen = float((metric.coordinates(whitening(phi)).z - metric.places[y]).square().mean())
    assert seen < unseen and noise == pytest.approx(unseen, rel=0.25)


def test_novelty_of_an_example_left_out_is_that_of_its_scores_and_of_all_other_directions() -> None:
    phi, y, _, _ = sample([400, 400, 400], 10)
    metric, whitening = made(phi, y)
    at = metric.coordinates(whitening(phi))
    left = leave_out(metric, at, y, whitening.leverage)
    plain = -metric.familiarity((metric.scores(at.z) - metric.evening).amax(1), at.rest)
    torch.testing.assert_close(left.novelty, plain, rtol=0.1, atol=0.3)  # one in four hundred is soon left out
