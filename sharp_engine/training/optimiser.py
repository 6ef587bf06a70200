"""Adadelta (Zeiler, 2012) for the weights of a phase, with torch's defaults: ρ = 0.9, ε = 10⁻⁶.

The gradient of an absent connection is taken as zero, so its weight never moves. The steps are those of
`torch.optim.Adadelta` to the last bit, but its first instance in a process imports torch's compiler: seconds of
processor time before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_RHO = 0.9
_EPSILON = 1e-6


class Adadelta:
    """One optimiser per phase."""

    def __init__(self, parameters: Iterable[tuple[Tensor, Tensor | None]], learning_rate: float) -> None:
        """Parameters with what multiplies their gradients: 1 for existing connections, else 0; none keeps it all."""
        self._rate = learning_rate
        self._state = [
            (parameter, existing, torch.zeros_like(parameter), torch.zeros_like(parameter))
            for parameter, existing in parameters
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient, and forget the gradients."""
        for parameter, existing, squares, changes in self._state:
            gradient = parameter.grad
            if gradient is None:
                continue
            if existing is not None:
                gradient.mul_(existing)
            squares.mul_(_RHO).addcmul_(gradient, gradient, value=1.0 - _RHO)
            change = (changes + _EPSILON).sqrt_().div_((squares + _EPSILON).sqrt_()).mul_(gradient)
            changes.mul_(_RHO).addcmul_(change, change, value=1.0 - _RHO)
            parameter.sub_(change, alpha=self._rate)
            parameter.grad = None
