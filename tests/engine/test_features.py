"""Stable features: whatever scale vectors come in, whatever comes first, they are learned, and never change again."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from sharp_engine import Learner, MetricConfig
from sharp_engine.config import RandomFunction
from sharp_engine.network.features import FeatureMap, Scale, learn_scale
from tests.engine.fixtures import DEVICES, metric
from tests.engine.test_calibration import blobs

CONFIG = metric(metric=MetricConfig(enabled=True, random_features=40), phases=1, rest_after=1)
MIXED = 10.0 ** torch.linspace(-3, 4, 10)


def unit_length(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


def unnormalised(x: Tensor) -> Tensor:
    return 50.0 * x + 1000.0


def mixed_scale(x: Tensor) -> Tensor:
    return x * MIXED


def tiny(x: Tensor) -> Tensor:
    return 1e-20 * x


def huge(x: Tensor) -> Tensor:
    return 1e25 * x


def with_constant_columns(x: Tensor) -> Tensor:
    return torch.cat((x, torch.full((len(x), 1), 7.0), torch.zeros(len(x), 1)), dim=1)


KINDS: list[Callable[[Tensor], Tensor]] = [
    unit_length,
    unnormalised,
    mixed_scale,
    tiny,
    huge,
    with_constant_columns,
]
STREAMS = {"pairs": [(0, 2), (2, 4), (4, 6)], "one class each": [(i, i + 1) for i in range(6)]}


def accuracy(learner: Learner, kind: Callable[[Tensor], Tensor]) -> float:
    x, y = blobs(range(6), 40, seed=99)
    return float(np.mean([a == b for a, b in zip(learner.predict(kind(x)).labels, y, strict=True)]))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_any_scale_are_learned(kind: Callable[[Tensor], Tensor], stream: str) -> None:
    learner = Learner(CONFIG)
    for first, stop in STREAMS[stream]:
        x, y = blobs(range(first, stop), 50, seed=first)
        learner.learn_episode(kind(x), y)
    assert accuracy(learner, kind) >= 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_single_first_example_vectors_of_any_scale_are_learned(kind: Callable[[Tensor], Tensor]) -> None:
    learner = Learner(CONFIG)
    x, y = blobs(range(6), 50, seed=1)
    learner.teach(kind(x[:1]), y[:1])
    learner.learn_episode(kind(x[1:150]), y[1:150])
    learner.learn_episode(kind(x[150:]), y[150:])
    assert accuracy(learner, kind) >= 0.9


def test_a_column_that_was_constant_at_first_counts_later() -> None:
    learner = Learner(CONFIG)
    x, y = blobs(range(2), 50, seed=1)
    learner.learn_episode(torch.cat((x, torch.zeros(100, 1)), dim=1), y)
    later = torch.cat((torch.cat((x[:50], x[:50])), torch.tensor([[5.0], [-5.0]]).repeat_interleave(50, 0)), dim=1)
    labels = [2] * 50 + [3] * 50  # told apart by nothing but the last column
    learner.learn_episode(later, labels)
    assert learner.predict(later).labels == labels


def test_what_an_example_is_made_of_never_changes_after_the_first_episode() -> None:
    learner = Learner(CONFIG)
    x, y = blobs(range(2), 30, seed=1)
    learner.learn_episode(x, y)
    before = learner.preprocessor(x)
    learner.learn_episode(1000.0 * x + 5.0, [2 + label for label in y])
    learner.teach(-x[:3], [0, 1, 2])
    assert torch.equal(learner.preprocessor(x), before)


# ---- scale ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_scaled_features_have_a_mean_of_0_and_a_deviation_of_1(device: str) -> None:
    x = mixed_scale(blobs(range(4), 50, seed=3)[0]).to(device)
    scaled = learn_scale(x)(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(10, device=device), rtol=0.0, atol=1e-3)
    torch.testing.assert_close(scaled.std(0), torch.ones(10, device=device), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(1, 3),
        torch.zeros(40, 3),
        torch.full((40, 3), 3e38),
        torch.full((2, 3), -3e38),
        torch.full((5, 3), 1e-45),
    ],
    ids=["a zero", "zeros", "largest", "two largest", "least"],
)
def test_whatever_comes_first_a_scale_is_positive_and_finite(x: Tensor) -> None:
    scale = learn_scale(x)
    assert bool(torch.isfinite(scale.mean).all()) and bool(torch.isfinite(scale.deviation).all())
    assert bool((scale.deviation > 0).all())
    assert bool(torch.isfinite(scale(x)).all())


def test_no_value_is_so_large_that_sums_of_it_overflow() -> None:
    scale = Scale(torch.zeros(3), torch.ones(3))
    s = scale(torch.tensor([[3e38, -3e38, 1.0]]))
    assert bool(torch.isfinite(s.to(torch.float16)).all()) and float(s[0, 2]) == 1.0
    learner = Learner(CONFIG)
    learner.learn_episode(*blobs(range(2), 30, seed=1))
    learner.teach(torch.full((1, 10), 3e38), [0])
    learner.learn_episode(torch.full((4, 10), -3e38), [0, 0, 1, 1])
    answer = learner.predict(torch.cat((torch.full((1, 10), 3e38), blobs(range(2), 1, seed=2)[0])))
    assert answer.novelty is not None
    assert np.isfinite(answer.share).all() and np.isfinite(answer.distance).all() and np.isfinite(answer.novelty).all()


# ---- map --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["relu", "cosine"])
@pytest.mark.parametrize("features", [4, 1001])
def test_the_map_is_the_features_and_random_ones_from_the_seed_alone(function: RandomFunction, features: int) -> None:
    device = torch.device("cpu")
    one, same, other = (FeatureMap(features, 9, seed, device, function) for seed in (3, 3, 4))
    s = torch.randn(6, features, generator=torch.Generator().manual_seed(0))
    phi = one(s)
    assert phi.shape == (6, features + 9) == (6, one.dimensions)
    assert torch.equal(phi[:, :features], s)
    assert bool((phi[:, features:] >= (0.0 if function == "relu" else -1.0)).all())
    assert function == "relu" or bool((phi[:, features:].abs() <= 1.0).all())
    assert torch.equal(phi, same(s)) and not torch.equal(phi, other(s))
    assert torch.equal(copy.deepcopy(one)(s), phi)


def test_products_of_cosines_fall_with_the_distance_of_examples() -> None:
    features = 300
    phi = FeatureMap(features, 20_000, 0, torch.device("cpu"), "cosine")
    one, other = torch.randn(2, features, generator=torch.Generator().manual_seed(0))
    cosines = phi(torch.stack((one, other)))[:, features:]
    apart = float((one - other).square().mean())
    assert float(2.0 * cosines[0] @ cosines[1] / 20_000) == pytest.approx(math.exp(-0.245 * apart), abs=0.03)


def test_without_random_features_the_map_is_the_features_themselves() -> None:
    s = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert FeatureMap(4, 0, 0, torch.device("cpu"), "cosine")(s) is s


def test_there_are_random_features_for_few_stable_ones_unless_a_number_is_set() -> None:
    assert MetricConfig(random_features=0).random_features_for(384) == 0
    assert MetricConfig().random_features_for(2) > 0
