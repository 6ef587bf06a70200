"""Adadelta, as PyTorch computes it, without PyTorch's optimiser object.

Making the first `torch.optim.Optimizer` of a process imports the compiler behind `torch.compile`, which nobody here
uses: more than a second of work for every training process that starts. The computation itself is PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta

_DECAY = 0.9
"""ρ: how slowly squared gradients and steps are forgotten."""
_EPSILON = 1e-6


class Adadelta:
    """Changes parameters by their gradients.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> optimiser = Adadelta([weight], lr=1.0)
    >>> (weight * 2).sum().backward()
    >>> optimiser.step()
    >>> bool(weight < 1)
    True
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self._parameters = list(parameters)
        self._lr = lr
        self._squares = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in self._parameters]
        self._deltas = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in self._parameters]
        self._steps = [torch.zeros(()) for _ in self._parameters]

    def zero_grad(self) -> None:
        """Drop the gradients of the last step."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        adadelta(
            [self._parameters[i] for i in moved],
            [gradient for i in moved if (gradient := self._parameters[i].grad) is not None],
            [self._squares[i] for i in moved],
            [self._deltas[i] for i in moved],
            [self._steps[i] for i in moved],
            lr=self._lr,
            rho=_DECAY,
            eps=_EPSILON,
            weight_decay=0.0,
            maximize=False,
        )
