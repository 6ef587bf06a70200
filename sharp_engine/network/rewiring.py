"""Selection, drop, grow, promotion and re-initialisation: everything that changes ranks and connections.

All functions change the network they are given (a phase works on its own copy). None may ever connect a unit to one of
a higher rank: the path property is what keeps old classes safe.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sharp_engine.config import FanIn, Selection
from sharp_engine.device import upload
from sharp_engine.network.state import HIGHEST_RANK, Network, kaiming_normal

_CHUNK = 32
"""Examples per forward while activations are summed: outputs of wide layers stay near the processor."""


@torch.no_grad()
def total_activations(network: Network, h: Tensor, first: int) -> list[Tensor]:
    """A: per layer from `first` on, the ReLU outputs of each unit summed over examples and positions: (units,) each."""
    totals = [torch.zeros(layer.units, dtype=torch.float64, device=h.device) for layer in network.layers[first:]]
    for chunk in h.split(_CHUNK):
        for total, (response, _) in zip(totals, network.trace(chunk, first), strict=True):
            per_example = response.sum((2, 3)) if response.ndim == 4 else response  # (n, units)
            total += per_example.sum(0, dtype=torch.float64)
    return totals


def select(ranks: Tensor, activation: Tensor, tau: float, selection: Selection) -> Tensor:
    """New ranks of one layer: the fewest units of rank < 2 that bring the covered activation to τ·A get rank 1.

    >>> select(torch.tensor([2, 0, 1, 0]), torch.tensor([5.0, 3.0, 1.0, 1.0]), 0.8, "covered")
    tensor([2, 1, 0, 0])
    """
    target = tau * activation.sum()
    candidate = ranks < 2
    if selection == "covered":
        target = target - activation[~candidate].sum()
        activation = activation.masked_fill(~candidate, 0.0)
    ordered, order = torch.sort(activation, descending=True, stable=True)
    covered_before = torch.cat((ordered.new_zeros(1), ordered.cumsum(0)[:-1]))  # by the units before each one
    met = torch.zeros_like(candidate)
    met[order] = (covered_before < target) & (ordered > 0)
    return torch.where(candidate, (met & candidate).to(ranks.dtype), ranks)


def drop(network: Network) -> list[int]:
    """Remove every connection from a rank-0 unit to a unit of rank ≥ 1; return how many went, per layer."""
    dropped = []
    for index, layer in enumerate(network.layers):
        if layer.pretrained:
            dropped.append(0)
            continue
        gone = layer.mask & (layer.ranks >= 1)[:, None] & (network.connection_source_ranks(index) == 0)[None, :]
        layer.mask &= ~gone
        layer.weight[gone] = 0.0
        dropped.append(int(gone.sum()))
    return dropped


def grow(network: Network, dropped: list[int], generator: torch.Generator) -> None:
    """For every dropped connection, and every one still owed, a new one of weight 0 into a rank-0 unit of the layer."""
    for layer, lost in zip(network.layers, dropped, strict=True):
        quota = lost + layer.shortfall
        if quota == 0:
            continue
        free = torch.nonzero((~layer.mask & (layer.ranks == 0)[:, None]).view(-1)).squeeze(1)  # places, flattened
        grown = min(quota, free.numel())
        chosen = free[upload(torch.randperm(free.numel(), generator=generator)[:grown], free.device)]
        layer.mask.view(-1)[chosen] = True
        layer.shortfall = quota - grown


def rewire(
    network: Network,
    activations: list[Tensor],
    first: int,
    tau: float,
    selection: Selection,
    generator: torch.Generator,
) -> None:
    """Steps 2 to 4 before a phase: select, drop, grow. `activations` are those of the layers from `first` on."""
    for index, activation in enumerate(activations, first):
        layer = network.layers[index]
        layer.ranks = select(layer.ranks, activation, tau, selection)
    grow(network, drop(network), generator)


def promote(network: Network) -> None:
    """Raise every rank above 0 by one; pretrained units already have the highest."""
    for layer in network.layers:
        layer.ranks += ((layer.ranks > 0) & (layer.ranks < HIGHEST_RANK)).to(layer.ranks.dtype)


def reinitialise_idle(network: Network, fan_in: FanIn, generator: torch.Generator) -> None:
    """Fresh Kaiming weights on the existing connections into rank-0 units, and zero biases."""
    for layer in network.layers:
        idle = layer.ranks == 0
        if layer.pretrained or not bool(idle.any()):
            continue
        fresh = kaiming_normal(layer.mask[idle].cpu(), tuple(layer.weight.shape[2:]), fan_in, generator)
        layer.weight[idle] = upload(fresh, layer.weight.device)
        layer.bias[idle] = 0.0
