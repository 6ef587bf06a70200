"""The learned metric: scores are those of the formula, at any number of examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from sharp_engine import MetricConfig
from sharp_engine.memory.semantic import SemanticMemory, empty_semantic_memory
from sharp_engine.prediction.left_out import leave_out
from sharp_engine.prediction.metric import (
    _COLUMNS,
    _LEAST_VARIATION,
    LENGTH,
    Means,
    Metric,
    Whitening,
    _invert,
    fit_whitening,
    whitened_means,
)
from tests.engine.fixtures import DEVICES

CONFIG = MetricConfig(enabled=True, shrinkage=1.0)
FLOOR = 0.3


def sample(counts: list[int], d: int, spread: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Examples of Gaussian classes, their classes, the true means and the mixing of the noise."""
    generator = torch.Generator().manual_seed(seed)
    centres = spread * torch.randn(len(counts), d, generator=generator)
    mix = torch.eye(d) + 0.3 * torch.randn(d, d, generator=generator) / math.sqrt(d)
    y = torch.cat([torch.full((count,), i) for i, count in enumerate(counts)])
    return centres[y] + torch.randn(len(y), d, generator=generator) @ mix, y, centres, mix


def learned(phi: Tensor, y: Tensor) -> SemanticMemory:
    return empty_semantic_memory(phi.shape[1], phi.device).learn([(phi, y)])


def whiten(memory: SemanticMemory) -> Whitening:
    """With every dimension a stable feature."""
    return fit_whitening(memory, len(memory.scatter), CONFIG)


def all_scores(metric: Metric, v: Tensor) -> Tensor:
    """Scores over all directions, also those that tell nothing of the class: (n, classes)."""
    at = metric.coordinates(v)
    return metric.scores(at.z) + metric.likeness(at.rest)[:, None]


def literal_scores(means: Tensor, counts: Tensor, v: Tensor, energy: float, floor: float, noise: float) -> Tensor:
    """Log-likelihood ratios, one class, one axis and one example after the other, as algorithm.md has them; then
    squared lengths of means are evened.
    """
    d = means.shape[1]
    means, v = means.double() / math.sqrt(noise), v.double() / math.sqrt(noise)
    share = counts / counts.sum()
    centre = (share[:, None] * means).sum(0)
    _, singular, axes = torch.linalg.svd(share.sqrt()[:, None] * (means - centre), full_matrices=True)
    used = len(means) - 1
    energy = energy / noise
    psi = singular[:used] ** 2 - len(means) / float(counts.sum()) * energy / max(used, 1)
    total = max(float(psi.clamp(min=0).sum()), _LEAST_VARIATION * energy)
    least = max(floor * total / energy, 1e-6)
    psi = torch.cat((psi.clamp(min=least), torch.full((d - used,), least, dtype=torch.float64)))
    scores = torch.zeros(len(v), len(means), dtype=torch.float64)
    lengths = torch.zeros(len(means), dtype=torch.float64)
    for c in range(len(means)):
        for axis in range(d):
            n = float(counts[c]) if axis < used else float(counts.max())
            place = (means[c] - centre) @ axes[axis] if axis < used else torch.zeros((), dtype=torch.float64)
            own = Normal(place * n * psi[axis] / (1 + n * psi[axis]), (1 + psi[axis] / (1 + n * psi[axis])).sqrt())
            seen = Normal(0.0, float((1 + psi[axis]).sqrt()))
            lengths[c] += own.mean.square() / own.variance
            for i, example in enumerate(v):
                at = (example - centre) @ axes[axis]
                scores[i, c] += own.log_prob(at) - seen.log_prob(at)
    return scores + 0.5 * (1.0 - LENGTH) * (lengths - share @ lengths)


@pytest.mark.parametrize("noise", [1.0, 1.7])
@pytest.mark.parametrize("counts", [[30, 30], [50, 3, 1, 200], [1, 1, 1], [9, 400, 2]], ids=str)
def test_scores_are_those_of_the_formula(counts: list[int], noise: float) -> None:
    generator = torch.Generator().manual_seed(3)
    means = 2.0 * torch.randn(len(counts), 6, generator=generator)
    v = 2.0 * torch.randn(8, 6, generator=generator)
    known = Means(tuple(range(len(counts))), torch.tensor(counts, dtype=torch.float64), means, 5.5)
    metric = Metric.of(known, FLOOR, noise)
    wanted = literal_scores(means, known.counts, v, 5.5, FLOOR, noise)
    torch.testing.assert_close(all_scores(metric, v).double(), wanted, rtol=1e-3, atol=1e-3)


def test_for_large_classes_scores_are_the_linear_discriminant_with_evened_lengths() -> None:
    generator = torch.Generator().manual_seed(4)
    means, v = 2.0 * torch.randn(5, 8, generator=generator), 2.0 * torch.randn(40, 8, generator=generator)
    metric = Metric.of(Means(tuple(range(5)), torch.full((5,), 1e9, dtype=torch.float64), means, 8.0), FLOOR, 1.0)
    scores = all_scores(metric, v)
    plain = v @ means.T - 0.5 * means.square().sum(1)
    plain += 0.5 * (1.0 - LENGTH) * (means - means.mean(0)).square().sum(1)
    torch.testing.assert_close(scores - scores[:, :1], plain - plain[:, :1], rtol=1e-3, atol=1e-3)


def test_a_class_of_one_example_is_not_pushed_away_for_being_uncertain() -> None:
    phi, y, centres, mix = sample([400, 400, 1], 60, spread=0.6)
    memory = learned(phi, y)
    whitening = whiten(memory)
    means = whitened_means(memory, whitening)
    metric = Metric.of(means, FLOOR, 1.0)
    generator = torch.Generator().manual_seed(9)
    right, plain = [], []
    for c in range(3):
        v = whitening(centres[c] + torch.randn(200, 60, generator=generator) @ mix)
        right.append(float((all_scores(metric, v).argmax(1) == c).float().mean()))
        plain.append(float((torch.cdist(v, means.means).argmin(1) == c).float().mean()))
    assert plain[2] < 0.2 and right[2] > 0.7
    assert min(right[:2]) > 0.8


def test_one_class_has_finite_scores_and_everything_like_it_is_likelier() -> None:
    phi, y, _, _ = sample([50], 6)
    memory = learned(phi, y)
    whitening = whiten(memory)
    metric = Metric.of(whitened_means(memory, whitening), FLOOR, 1.0)
    near, far = (all_scores(metric, whitening(x)) for x in (phi, phi + 100.0))
    assert bool(torch.isfinite(near).all()) and float(near.mean()) > float(far.mean())


def test_two_classes_in_the_same_place_have_the_same_score() -> None:
    phi = torch.ones(60, 4)
    memory = learned(phi, torch.arange(60) % 2)
    whitening = whiten(memory)
    metric = Metric.of(whitened_means(memory, whitening), FLOOR, 1.0)
    at = metric.coordinates(whitening(phi))
    assert bool(torch.isfinite(metric.scores(at.z)).all())
    left = leave_out(metric, at, torch.zeros(60, dtype=torch.int64), whitening.leverage)
    assert left.noise == 1.0 and bool(torch.isfinite(left.scores).all())


# ---- whitening --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_whitened_classes_scatter_alike_in_all_directions(device: str) -> None:
    phi, y, centres, _ = sample([4000, 4000], 5)
    memory = learned(phi.to(device), y)
    whitening = whiten(memory)
    v = whitening(phi.to(device)).cpu()
    for c in (0, 1):
        torch.testing.assert_close(torch.cov(v[y == c].T), torch.eye(5), rtol=0.0, atol=0.1)
    assert not torch.allclose(torch.cov(phi[y == 0].T), torch.eye(5), atol=0.1)


@pytest.mark.parametrize(
    "phi",
    [torch.zeros(30, 4), torch.ones(1, 4), torch.eye(4), torch.full((30, 4), 1e4)],
    ids=["zeros", "one example", "one example each", "large and constant"],
)
def test_whatever_the_examples_whitening_is_finite(phi: Tensor) -> None:
    for classes in (1, 2, 4):
        memory = learned(phi, torch.arange(len(phi)) % classes)
        assert bool(torch.isfinite(whiten(memory).matrix).all())


def test_a_large_factor_is_inverted_as_a_solver_would() -> None:
    size = 2 * _COLUMNS + 3  # halved twice, unevenly
    lower = torch.randn(size, size, generator=torch.Generator().manual_seed(0)).tril() / size + torch.eye(size)
    inverse = lower.clone()
    _invert(inverse)
    solved = torch.linalg.solve_triangular(lower.double(), torch.eye(size, dtype=torch.float64), upper=False)
    torch.testing.assert_close(inverse.double(), solved, atol=1e-6, rtol=1e-5)
    assert not inverse.triu(1).any()


def test_a_scatter_that_is_none_is_shrunk_until_it_is_one() -> None:
    phi, y, _, _ = sample([50, 50], 4)
    memory = learned(phi, y)
    broken = memory.scatter.clone()
    broken[0, 1] = broken[1, 0] = 5.0 * float(broken.diagonal().max())
    from dataclasses import replace

    assert bool(torch.isfinite(whiten(replace(memory, scatter=broken)).matrix).all())


@pytest.mark.parametrize("alike", [False, True], ids=["any lengths", "equal lengths"])
def test_distances_are_in_the_order_of_scores_and_about_one_for_an_example_of_the_class(alike: bool) -> None:
    phi, y, centres, _ = sample([300, 300, 300], 20)
    if alike:  # else a class that lies further out than the others is said to be a little nearer than it is
        phi += (20.0 * torch.eye(3, 20) - centres)[y]
    memory = learned(phi, y)
    whitening: Whitening = whiten(memory)
    metric = Metric.of(whitened_means(memory, whitening), FLOOR, 1.0)
    at = metric.coordinates(whitening(phi))
    scores = metric.scores(at.z)
    strange = metric.strangeness(at.z)
    distances = metric.distances(strange, scores)
    assert np.array_equal(distances.numpy(), metric.distances(strange.numpy(), scores.numpy()))
    assert torch.equal(distances.argmin(1), scores.argmax(1))
    assert 0.0 < float(distances.amin())
    assert 0.7 < float(distances.amin(1).mean()) < 1.5 or not alike
    lifted = metric.distances(strange, scores + torch.tensor([100.0, 101.0, 3000.0]))
    assert bool((lifted > 0).all()) and bool((lifted[:, 2] < lifted[:, :2].amin(1)).all())
