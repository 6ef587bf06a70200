"""The dense subnetwork that is computed with: some units of the full network, and nothing else.

Units of rank 0 reach the loss by no path and units outside every long-term mask reach no prediction, so leaving them
out changes no result (invariant 7). Absent connections between the units that stay are zeros; `connections` masks
their gradients so that training can never bring them to life.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.network.state import Layer, Network, expand


@dataclass
class CompactLayer:
    """The kept units of one layer, as dense weights."""

    layer: Layer
    units: Tensor
    """(kept,) indices of the kept units in the full layer."""
    inputs: Tensor
    """(kept inputs,) indices of the kept connections' sources in the full layer."""
    weight: Tensor
    """(kept, kept inputs[, 3, 3]); convolutions in channels-last order, which CPUs pool and convolve faster."""
    bias: Tensor
    """(kept,)"""

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs after pooling and ReLU."""
        return self.respond(self.preactivation(x, self.weight, self.bias))

    def preactivation(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Before pooling and ReLU, by weights of the kept units."""
        if self.layer.kind == "linear":
            return F.linear(x.flatten(1), weight, bias)
        if weight.numel():
            return F.conv2d(x, weight, bias, padding=1)
        alone = weight.new_zeros(len(weight)) if bias is None else bias  # convolutions refuse to be empty
        return alone[None, :, None, None].expand(len(x), -1, *x.shape[2:]).clone()

    def respond(self, x: Tensor) -> Tensor:
        """Pooling, then ReLU: the same result as the other way round for a quarter of the work. May change x."""
        if self.layer.pool and not len(self.units):  # pooling refuses to be empty, too
            return x[:, :, : x.shape[2] // 2, : x.shape[3] // 2]
        return (F.max_pool2d(x, 2) if self.layer.pool else x).relu_()

    def connections(self) -> Tensor:
        """What the weights' gradient is multiplied with: 1 for existing connections, else 0."""
        existing = self.layer.mask[self.units[:, None], self.inputs[None, :]]
        return expand(existing, self.weight).to(self.weight.dtype)

    def write_back(self) -> None:
        """Copy the trained weights and biases into the full layer."""
        self.layer.weight[self.units[:, None], self.inputs[None, :]] = self.weight.detach()
        self.layer.bias[self.units] = self.bias.detach()


def take(layer: Layer, units: Tensor, sources: Tensor) -> CompactLayer:
    """Some units of a layer, connected from some source units: both as indices, in the order they are to have."""
    offsets = torch.arange(layer.positions, device=sources.device)
    inputs = (sources[:, None] * layer.positions + offsets[None, :]).view(-1)
    weight = layer.weight[units[:, None], inputs[None, :]]
    if layer.kind == "conv":
        weight = weight.contiguous(memory_format=torch.channels_last)
    return CompactLayer(layer, units, inputs, weight, layer.bias[units])


def indices(kept: Tensor) -> Tensor:
    """Where a bool vector is true."""
    return torch.nonzero(kept).squeeze(1)


class CompactNetwork:
    """A network of the kept units; `g` and `f` are its two halves, so that replay can enter at the cut."""

    def __init__(self, network: Network, kept: list[Tensor]) -> None:
        self.cut = network.cut
        self.layers: list[CompactLayer] = []
        sources = torch.arange(network.shapes[0][0], device=network.device)
        self.cut_units = sources  # units of h that F sees
        for index, (layer, keep) in enumerate(zip(network.layers, kept, strict=True)):
            if index == network.cut:
                self.cut_units = sources
            self.layers.append(take(layer, indices(keep), sources))
            sources = self.layers[-1].units

    @property
    def output_units(self) -> Tensor:
        """Indices, in the full last layer, of the kept output units."""
        return self.layers[-1].units

    def g(self, x: Tensor) -> Tensor:
        """h of the kept units: (n, kept, …)."""
        for layer in self.layers[: self.cut]:
            x = layer(x)
        return x

    def f(self, h: Tensor) -> Tensor:
        """z of the kept units: (n, kept)."""
        for layer in self.layers[self.cut :]:
            h = layer(h)
        return h

    def replayable(self, h: Tensor) -> Tensor:
        """The kept units of full activations h: what `f` takes."""
        return h[:, self.cut_units]


def active_subnetwork(network: Network) -> CompactNetwork:
    """The units of rank ≥ 1: all that the loss can see."""
    return CompactNetwork(network, [layer.ranks >= 1 for layer in network.layers])


def needed_subnetwork(network: Network, output_units: Tensor) -> CompactNetwork:
    """The units from which some path leads to the given output units, (units,) bool."""
    kept = [output_units]
    for layer in reversed(network.layers[1:]):
        sources = layer.mask[kept[0]].any(0)  # (inputs,)
        kept.insert(0, sources.view(-1, layer.positions).any(1))
    return CompactNetwork(network, kept)
