"""The optimiser of a phase against torch's own."""

from __future__ import annotations

import subprocess
import sys

import torch

from sharp_engine.training.optimiser import Adadelta


def test_steps_are_those_of_torch_to_the_last_bit() -> None:
    random = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=random) for shape in ((7, 5), (7,), (3, 2, 3, 3))]
    theirs = [parameter.clone() for parameter in ours]
    mine, torchs = Adadelta([(p, None) for p in ours], 0.7), torch.optim.Adadelta(theirs, lr=0.7)
    for _ in range(20):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=random)
            b.grad = a.grad.clone()
        mine.step()
        torchs.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b) and a.grad is None


def test_absent_connections_stay_at_zero_and_parameters_without_a_gradient_where_they_are() -> None:
    existing = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    weight, untouched = torch.zeros(2, 2), torch.ones(3)
    optimiser = Adadelta([(weight, existing), (untouched, None)], 1.0)
    for _ in range(3):
        weight.grad = torch.ones(2, 2)
        optimiser.step()
    assert torch.equal(weight != 0, existing.bool())
    assert torch.equal(untouched, torch.ones(3))


def test_learning_does_not_import_the_compiler() -> None:
    program = (
        "import sys, torch, sharp_engine as e\n"
        "learner = e.Learner(e.preset('default').with_options({'training.phases': 1, 'training.min_steps': 1}))\n"
        "learner.learn_episode(torch.rand(20, 6), ['a', 'b'] * 10)\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
