"""Duels between the leading classes: against their definition, and what they are good for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sharp_engine.duels import LEADING, Duels
from sharp_engine.learner import Learner
from sharp_engine.ltm import ClassMemory, remember
from tests.engine.made import examples, linear, mlp, trained

Vector = NDArray[np.float64]


def unit(v: Vector) -> Vector:
    length = float(np.linalg.norm(v))
    return v / length if length else v


def won(classes: tuple[ClassMemory, ...], z: Vector, one: int, other: int) -> float:
    """The share of a duel that goes to `one`, by the definition: loops, and a covariance that is inverted as it is."""
    masks = [memory.mask.numpy() for memory in classes]
    within = [mask for mask in masks if not (mask & ~masks[one]).any() and not (mask & ~masks[other]).any()]
    if not within:
        return 0.5
    mask = max(within, key=lambda m: int(m.sum()))
    means, residuals = {}, []
    for c, memory in enumerate(classes):
        if (mask & ~masks[c]).any():
            continue
        rows = []
        for vector in memory.vectors.double().numpy():
            full = np.zeros(len(mask))
            full[masks[c]] = vector
            rows.append(unit(full[mask]))
        means[c] = np.mean(rows, axis=0)
        residuals += [row - means[c] for row in rows]
    covariance = np.mean([np.outer(r, r) for r in residuals], axis=0)
    size = len(covariance)
    even = max(0.1 * np.trace(covariance) / size, 1e-6)
    inverse = np.linalg.inv(0.9 * covariance + even * np.eye(size))
    x = unit(z[mask])
    difference, middle = means[one] - means[other], (means[one] + means[other]) / 2
    return float(1.0 / (1.0 + np.exp(-(x - middle) @ inverse @ difference / 4.0)))


def test_duels_are_their_definition() -> None:
    layers = (linear(20), linear(30), linear(30))
    learner = trained(mlp(vote="calibrated", ltm_per_class=7, stm_capacity=14, layers=layers))
    assert len({memory.mask.numpy().tobytes() for memory in learner.ltm.classes}) > 1
    x, _ = examples(range(6), each=4, noise=0.6, seed=52)
    before = learner.predict(x, top=6)
    settled = voting(learner, "duels").predict(x, top=6)
    place = {learner.labels.label(memory.class_id): i for i, memory in enumerate(learner.ltm.classes)}
    changed = 0
    for i, example in enumerate(x):
        z = learner.network.run(learner.front(example[None]))[0].double().numpy()
        leaders = before.top_labels[i][:LEADING]
        total = {
            label: 2.0 * float(share) for label, share in zip(before.top_labels[i], before.top_share[i], strict=True)
        }
        for one, other in itertools.combinations(leaders, 2):
            share = won(learner.ltm.classes, z, place[one], place[other])
            total[one] += share / 3
            total[other] += (1.0 - share) / 3
        expected = sorted(total.values(), reverse=True)
        np.testing.assert_allclose(settled.top_share[i], np.array(expected) / 4.0, atol=2e-3)
        assert total[settled.labels[i]] == pytest.approx(expected[0], abs=8e-3)
        changed += settled.labels[i] != before.labels[i]
    assert changed > 0, "no duel decided anything: the test shows nothing"


def voting(learner: Learner, vote: str) -> Learner:
    learner.config = learner.config.with_options({"prediction.vote": vote})
    learner._predictor = None
    return learner


def test_a_metric_sees_what_cosines_do_not() -> None:
    """Two classes differ a little in a quiet unit, and memories of both vary a lot in a loud one."""
    loud = torch.linspace(0.2, 2.0, 12)
    memories = tuple(
        remember(i, 1, torch.stack((loud, torch.full((12,), 1.0), torch.full((12,), quiet)), 1), torch.ones(3).bool())
        for i, quiet in enumerate((0.10, 0.16))
    )
    x = torch.tensor([[2.0, 1.0, 0.16], [0.3, 1.0, 0.10]])
    even, order = torch.full((2, 2), 0.5), torch.tensor([[0, 1], [0, 1]])
    share, winner = Duels(memories, torch.arange(3)).settle(x, even, order)
    assert winner[:, 0].tolist() == [1, 0]
    assert share.sum(1).tolist() == pytest.approx([1.0, 1.0])


def test_classes_whose_masks_have_nothing_in_common_draw() -> None:
    masks = torch.tensor([[True, True, False, False], [False, False, True, True]])
    memories = tuple(remember(i, i + 1, torch.rand(5, 4) + 0.1, mask) for i, mask in enumerate(masks))
    share = torch.tensor([[0.7, 0.3]])
    settled, order = Duels(memories, torch.arange(4)).settle(torch.rand(1, 4), share, torch.tensor([[0, 1]]))
    assert order.tolist() == [[0, 1]]
    np.testing.assert_allclose(settled, (2.0 * share + 0.5) / 3.0, atol=1e-6)


@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 10_000))
def test_whatever_is_remembered_shares_stay_shares(classes: int, each: int, seed: int) -> None:
    """Also with more masks than are compared on, with single memories, and with examples that say nothing."""
    generator = torch.Generator().manual_seed(seed)
    units = 64
    memories = tuple(
        remember(i, i + 1, torch.rand(each, units, generator=generator), torch.arange(units) < 1 + i)
        for i in range(classes)
    )
    z = torch.rand(3, units, generator=generator)
    z[0] = 0.0
    looked = min(8, classes)
    order = torch.stack([torch.randperm(classes, generator=generator)[:looked] for _ in z])
    share = torch.rand(3, looked, generator=generator).sort(dim=1, descending=True).values
    share /= share.sum(1, keepdim=True)
    settled, after = Duels(memories, torch.arange(units)).settle(z, share, order)
    np.testing.assert_allclose(settled.sum(1), 1.0, atol=1e-5)
    assert bool((settled[:, 1:] <= settled[:, :-1]).all())
    assert after.sort(dim=1).values.tolist() == order.sort(dim=1).values.tolist()
