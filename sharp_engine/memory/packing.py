"""How short-term memory packs activations: a byte per value (the paper's supplement, section C.2).

Each activation is min-max quantised on its own to 256 evenly spaced levels. A constant one survives the round trip
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LEVELS = 255


@dataclass(frozen=True)
class Packed:
    """A few activations as bytes."""

    codes: Tensor
    """(n, values) uint8."""
    scales: Tensor
    """(n, 2) float32: least and largest value of each."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of the values. Scales come on top, as in the paper's account."""
        return self.codes.numel()

    @property
    def overhead(self) -> int:
        """Bytes of the scales."""
        return self.scales.numel() * self.scales.element_size()

    def take(self, indices: Tensor) -> Packed:
        """Some of the activations."""
        return Packed(self.codes[indices], self.scales[indices])

    def alternate(self, other: Packed) -> Packed:
        """One of these, one of the others, and so on."""
        joined = Packed(torch.cat((self.codes, other.codes)), torch.cat((self.scales, other.scales)))
        return joined.take(torch.tensor(alternating(len(self), len(other)), dtype=torch.int64))


def alternating(first: int, second: int) -> list[int]:
    """Places of so many things and of so many that follow them, one of the first, one of the second, and so on.

    >>> alternating(3, 1)
    [0, 3, 1, 2]
    """
    places = sorted([(i, 0) for i in range(first)] + [(i, 1) for i in range(second)])
    return [i + first * which for i, which in places]


def pack(h: Tensor) -> Packed:
    """Quantise activations h: (n, …)."""
    values = h.detach().cpu().flatten(1).float()  # (n, values)
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)  # (n, 1)
    span = torch.where(high > low, high - low, 1.0)
    codes = ((values - low) / span * _LEVELS).round().to(torch.uint8)
    return Packed(codes, torch.cat((low, high), dim=1))


def unpack(packed: Packed, shape: tuple[int, ...]) -> Tensor:
    """Activations of the given shape, float32, on the CPU: (n, *shape)."""
    low, high = packed.scales[:, :1], packed.scales[:, 1:]  # (n, 1)
    values = low + (high - low) * (packed.codes.float() / _LEVELS)
    return values.view(len(packed), *shape)
