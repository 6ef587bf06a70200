"""The optimiser: PyTorch's numbers to the last bit, without what PyTorch's object imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import torch

from sharp_engine.optimiser import Adadelta


def test_it_computes_what_pytorchs_adadelta_computes_to_the_last_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    start = [torch.randn(size, generator=generator) for size in ((7, 5), (7,), (4, 3, 3, 3))]
    start[2] = start[2].contiguous(memory_format=torch.channels_last)
    ours, theirs = ([p.clone().requires_grad_(True) for p in start] for _ in range(2))
    optimisers: list[Any] = [Adadelta(ours, lr=0.7), torch.optim.Adadelta(theirs, lr=0.7)]
    for step in range(20):
        factors = [torch.randn(p.shape, generator=generator) for p in start]
        for parameters, optimiser in zip((ours, theirs), optimisers, strict=True):
            used = zip(parameters[: 2 if step % 3 == 0 else 3], factors, strict=False)
            optimiser.zero_grad()
            torch.stack([(p.square() * factor).sum() for p, factor in used]).sum().backward()
            optimiser.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not any(torch.equal(one, before) for one, before in zip(ours, start, strict=True))


def test_learning_does_not_import_the_compiler() -> None:
    program = (
        "import sys, torch, sharp_engine as e\n"
        "learner = e.Learner(e.preset('default').with_options({'training.phases': 1}))\n"
        "learner.learn_episode(torch.rand(20, 6), ['a', 'b'] * 10)\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
