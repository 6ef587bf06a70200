"""The engine's fast path and the plain reference learn the same: ranks, connections, weights, memories, answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sharp_engine import Learner, LearnerConfig
from tests.engine.fixtures import IMAGE, VECTOR, conv, convnet, examples, linear, mlp
from tests.engine.reference import Reference, contrastive_loss

SEQUENCE = ((0, 1), (2, 3), (4, 5), (6, 0), (7, 8))
"""Class 0 comes back in the fourth episode."""


def compare(learner: Learner, reference: Reference, shape: tuple[int, ...]) -> None:
    assert learner.episodes == reference.episode
    for layer, plain in zip(learner.network.layers, reference.layers, strict=True):
        assert layer.ranks.tolist() == plain.ranks, layer.name
        assert layer.mask.tolist() == plain.exists, layer.name
        assert (layer.shortfall, layer.connections) == (plain.owed, plain.constant), layer.name
        torch.testing.assert_close(layer.weight, plain.weight, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(layer.bias, plain.bias, rtol=0.0, atol=1e-5)
    assert [(s.class_id, s.episode, len(s.packed)) for s in learner.stm.classes] == [
        (s.label, s.episode, len(s.activations)) for s in reference.stm
    ]
    for stored, plain_stored in zip(learner.stm.classes, reference.stm, strict=True):
        h = learner.stm.activations(stored)
        torch.testing.assert_close(h, torch.stack(plain_stored.activations), rtol=0.0, atol=1e-5)
    assert {memory.class_id for memory in learner.ltm.classes} == set(reference.ltm)
    for memory in learner.ltm.classes:
        remembered = reference.ltm[memory.class_id]
        assert (memory.mask.tolist(), memory.episode) == (remembered.mask, remembered.episode)
        wanted = torch.nn.functional.normalize(torch.stack(remembered.representations)[:, memory.mask], dim=1)
        torch.testing.assert_close(memory.vectors, wanted, rtol=0.0, atol=1e-4)
    x, _ = examples(list(range(9)), shape, each=1, noise=0.6, seed=99)
    assert learner.predict(x).labels == reference.predict(x)


def run_both(config: LearnerConfig, shape: tuple[int, ...], each: int = 12) -> Learner:
    learner, reference = Learner(config), Reference(config, shape)
    for number, classes in enumerate(SEQUENCE):
        x, y = examples(classes, shape, each, seed=number)
        # New classes appear in rising order, so that the engine's class ids are the labels themselves.
        order = sorted(range(len(y)), key=lambda i: (i != y.index(y[i]), y[i] if i == y.index(y[i]) else i))
        x, y = x[order], [y[i] for i in order]
        learner.learn_episode(x, y)
        reference.learn_episode(x, [int(label) for label in y])
        compare(learner, reference, shape)
    return learner


SELECTIONS = ["covered", "greedy-all"]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("m", "cut"), [(0, 1), (1, 0), (1, 1), (2, 1), (2, 2)])
def test_mlp_learns_what_the_reference_learns(selection: str, m: int, cut: int) -> None:
    run_both(mlp(cut, selection=selection, replayed_episodes=m), VECTOR)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("m", "cut"), [(0, 2), (1, 2), (2, 0), (2, 1)])
def test_convnet_learns_what_the_reference_learns(selection: str, m: int, cut: int) -> None:
    run_both(convnet(cut, selection=selection, replayed_episodes=m), IMAGE)


@pytest.mark.parametrize(
    "options",
    [
        {"density": 0.2},
        {"density": 1.0},
        {"blurry": True},
        {"stm_capacity": 5},
        {"tau_min": 0.6, "phases": 4},
        {"epochs": 3, "temperature": 0.5, "learning_rate": 0.5},
        {"anchor_losses": "sum"},
        {"fan_in": "existing"},
        {"neighbours": 1},
        {"selection_examples": 7},
    ],
    ids=str,
)
def test_every_setting_means_what_it_means_in_the_reference(options: dict[str, Any]) -> None:
    run_both(mlp(**options), VECTOR)


def test_a_convolution_behind_the_cut_learns_what_the_reference_learns() -> None:
    layers = (conv(3), conv(4, pool=True), conv(4, pool=True), linear(8))
    run_both(convnet(2, layers=layers), (2, 8, 8))


def test_shortfall_is_carried_as_in_the_reference() -> None:
    learner = run_both(mlp(density=0.9, tau_min=1.0), VECTOR)
    assert any(layer.shortfall for layer in learner.network.layers)


def test_contrastive_loss_is_the_mean_over_anchors_that_have_a_positive() -> None:
    from sharp_engine.training.loss import supervised_contrastive_loss

    generator = torch.Generator().manual_seed(0)
    z = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    z[3] = 0.0
    labels = [0, 1, 0, 1, 2, 0, 3, 3, 1]  # class 2 has no positive
    fast, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss = supervised_contrastive_loss(fast, torch.tensor(labels), 0.3)
    wanted = contrastive_loss(plain, labels, 0.3)
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    rows = [i for i in range(9) if i != 3]  # φ has no derivative at zero
    assert fast.grad is not None and plain.grad is not None
    torch.testing.assert_close(fast.grad[rows], plain.grad[rows])


def test_contrastive_loss_without_any_positive_is_zero_and_has_no_gradient() -> None:
    from sharp_engine.training.loss import supervised_contrastive_loss

    z = torch.rand(3, 4, requires_grad=True)
    loss = supervised_contrastive_loss(z, torch.arange(3), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert z.grad is not None and not bool(z.grad.any())
