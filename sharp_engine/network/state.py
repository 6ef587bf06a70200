"""The full state of the network: every layer's weights, existing connections, ranks and what is frozen.

This is what is saved, inspected and rewired. It is not what is trained or predicted with: `compact.py` takes the units
that matter out of it and writes them back. A weight is exactly zero where its connection does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import FanIn, LayerConfig
from sharp_engine.errors import ConfigError
from sharp_engine.network.architecture import Architecture

HIGHEST_RANK = int(torch.iinfo(torch.int32).max)
"""The rank of input units and of pretrained units: above every rank that promotion can reach."""

UnitState = Literal["idle", "training", "fine-tuning", "frozen"]


@dataclass
class Layer:
    """A layer of units: owns its weights, connections, ranks and freezing."""

    name: str
    kind: Literal["conv", "linear"]
    pool: bool
    weight: Tensor
    """(units, inputs, 3, 3) of a convolution, (units, inputs) of a linear layer; 0 where no connection exists."""
    bias: Tensor
    """(units,)"""
    mask: Tensor
    """(units, inputs) bool: which connections exist."""
    ranks: Tensor
    """(units,) int32."""
    positions: int
    """Inputs per source unit: height × width where a linear layer follows a convolution, else 1."""
    connections: int
    """How many connections exist, for the whole run, together with the shortfall."""
    shortfall: int
    """Connections that growing could not place; carried to the next phase."""
    freezes_above: int
    """Units of a rank above this one are frozen."""
    pretrained: bool = False
    """Frozen and unpruned from the start, at the highest rank."""

    @property
    def units(self) -> int:
        """How many units the layer has."""
        return self.weight.shape[0]

    @property
    def frozen(self) -> Tensor:
        """(units,) bool: units whose incoming weights and biases may never change again."""
        return self.ranks > self.freezes_above

    def copy(self) -> Layer:
        """A copy that shares no memory."""
        return replace(
            self,
            weight=self.weight.clone(),
            bias=self.bias.clone(),
            mask=self.mask.clone(),
            ranks=self.ranks.clone(),
        )

    def state_masks(self) -> dict[UnitState, Tensor]:
        """Which units are in which state (figure 1c of the paper)."""
        frozen = self.frozen
        return {
            "idle": self.ranks == 0,
            "training": (self.ranks == 1) & ~frozen,
            "fine-tuning": (self.ranks >= 2) & ~frozen,
            "frozen": frozen,
        }

    def preactivation(self, x: Tensor) -> Tensor:
        """Outputs of all units before pooling and ReLU: (n, units, h, w) or (n, units)."""
        if self.kind == "conv":
            return F.conv2d(x, self.weight, self.bias, padding=1)
        return F.linear(x.flatten(1), self.weight, self.bias)


def expand(mask: Tensor, weight: Tensor) -> Tensor:
    """A mask over connections, shaped to multiply weights: a convolution's connection is a whole kernel."""
    return mask.view(*mask.shape, *(1 for _ in weight.shape[2:]))


def kaiming_normal(mask: Tensor, kernel: tuple[int, ...], fan_in: FanIn, generator: torch.Generator) -> Tensor:
    """Fresh weights of some units: deviation √2 over the root of the fan-in, 0 where no connection exists.

    mask: (units, inputs) bool. Returns (units, inputs, *kernel).
    """
    weight = torch.empty(*mask.shape, *kernel).normal_(generator=generator)
    counted = mask if fan_in == "existing" else torch.ones_like(mask)
    weights = counted.sum(1, keepdim=True, dtype=torch.float64) * weight[0, 0].numel()  # (units, 1)
    std = (2.0 / weights.clamp(min=1)).sqrt().float()
    return weight * expand(std * mask, weight)


def rank_counts(ranks: Tensor) -> dict[int, int]:
    """How many units have which rank."""
    values, counts = ranks.unique(return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


@dataclass
class Network:
    """The ordered layers; the first `cut` of them are G, the others F."""

    layers: list[Layer]
    cut: int
    shapes: list[tuple[int, ...]]
    """Shape of one example before each layer, and after the last."""

    @property
    def g(self) -> list[Layer]:
        """The layers before the replay cut."""
        return self.layers[: self.cut]

    @property
    def f(self) -> list[Layer]:
        """The layers behind the replay cut."""
        return self.layers[self.cut :]

    @property
    def cut_shape(self) -> tuple[int, ...]:
        """Shape of h = G(x), the activation that short-term memory stores."""
        return self.shapes[self.cut]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.layers[0].weight.device

    def copy(self) -> Network:
        """A copy that shares no memory."""
        return Network([layer.copy() for layer in self.layers], self.cut, list(self.shapes))

    def source_ranks(self, index: int) -> Tensor:
        """(source units,) ranks of what layer `index` is connected from; inputs have the highest."""
        if index > 0:
            return self.layers[index - 1].ranks
        return torch.full((self.shapes[0][0],), HIGHEST_RANK, dtype=torch.int32, device=self.device)

    def connection_source_ranks(self, index: int) -> Tensor:
        """(inputs,) rank of the source of each connection of layer `index`."""
        return self.source_ranks(index).repeat_interleave(self.layers[index].positions)

    def run(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """Outputs of layers `first` … `last` with every unit computed."""
        for _, output in self.trace(x, first, last):
            x = output
        return x

    def trace(self, x: Tensor, first: int = 0, last: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """For each layer: (units' ReLU outputs before pooling, what the next layer sees)."""
        for layer in self.layers[first:last]:
            response = layer.preactivation(x).relu_()
            x = F.max_pool2d(response, 2) if layer.pool else response
            yield response, x


@dataclass(frozen=True)
class LayerPlan:
    """What a layer will be, known before anything of it takes memory."""

    spec: LayerConfig
    inputs: int
    """Incoming connections that a unit can have."""
    positions: int
    """See `Layer.positions`."""
    kernel: tuple[int, ...]
    """(3, 3) of a convolution; empty of a linear layer."""
    out_shape: tuple[int, ...]

    def shape(self, part: str) -> tuple[int, ...]:
        """The shape of the layer's weight, bias, mask or ranks."""
        units, inputs = self.spec.units, self.inputs
        return {"weight": (units, inputs, *self.kernel), "mask": (units, inputs)}.get(part, (units,))


def plan(architecture: Architecture, feature_shape: tuple[int, ...]) -> list[LayerPlan]:
    """The layers that an architecture has where the first one sees `feature_shape`, or ConfigError. Builds nothing."""
    plans: list[LayerPlan] = []
    shape = feature_shape
    for index, spec in enumerate(architecture.layers):
        if spec.kind == "conv":
            if len(shape) != 3:
                raise ConfigError(f"layer {index} is a convolution but sees vectors of shape {shape}")
            height, width = (side // 2 if spec.pool else side for side in shape[1:])
            if min(height, width) < 1:
                raise ConfigError(
                    f"images of {architecture.input_shape} are too small: nothing is left after layer {index}"
                )
            plans.append(LayerPlan(spec, shape[0], 1, (3, 3), (spec.units, height, width)))
        else:
            positions = 1 if len(shape) == 1 else shape[1] * shape[2]
            plans.append(LayerPlan(spec, shape[0] * positions, positions, (), (spec.units,)))
        shape = plans[-1].out_shape
    return plans


def build(
    architecture: Architecture,
    density: float,
    fan_in: FanIn,
    m: int,
    feature_shape: tuple[int, ...],
    generator: torch.Generator | None,
    device: torch.device,
) -> Network:
    """A fresh network: Kaiming-normal weights, zero biases, randomly chosen connections, all ranks 0.

    `feature_shape` is what the first layer sees: the input's shape, or a backbone's output. Without a generator the
    network is blank, to be filled: no weights and no connections.
    """
    layers: list[Layer] = []
    plans = plan(architecture, feature_shape)
    for index, planned in enumerate(plans):
        spec, inputs = planned.spec, planned.inputs
        mask = torch.full(planned.shape("mask"), generator is not None)
        first_convolution = index == 0 and spec.kind == "conv"
        connections = mask.numel() if first_convolution else round(density * mask.numel())
        if generator is not None and connections < mask.numel():
            chosen = torch.randperm(mask.numel(), generator=generator)[:connections]
            mask = torch.zeros(mask.numel(), dtype=torch.bool).index_fill_(0, chosen, True).view(spec.units, inputs)
        if generator is None:
            weight = torch.zeros(planned.shape("weight"))
        else:
            weight = kaiming_normal(mask, planned.kernel, fan_in, generator)
        layer = Layer(
            name=f"{'G' if index < architecture.cut else 'F'}{index + 1}-{spec.kind}",
            kind=spec.kind,
            pool=spec.pool,
            weight=weight,
            bias=torch.zeros(spec.units),
            mask=mask,
            ranks=torch.zeros(spec.units, dtype=torch.int32),
            positions=planned.positions,
            connections=connections,
            shortfall=0,
            freezes_above=1 if index < architecture.cut else m + 1,
        )
        layers.append(
            replace(layer, **{name: getattr(layer, name).to(device) for name in ("weight", "bias", "mask", "ranks")})
        )
    return Network(layers, architecture.cut, [feature_shape, *(planned.out_shape for planned in plans)])
