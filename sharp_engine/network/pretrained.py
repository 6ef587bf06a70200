"""A pretrained G in front of a learned metric: its layers as one frozen module, whose answers are stable features.

Without a learned metric the pretrained layers are part of the network instead, at the highest rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sharp_engine.errors import ConfigError
from sharp_engine.network.architecture import Architecture
from sharp_engine.network.state import LayerPlan, plan


class PretrainedLayers(nn.ModuleList):
    """Layers of units, each with a ReLU, some with a pooling."""

    def __init__(self, plans: list[LayerPlan]) -> None:
        super().__init__(
            nn.Conv2d(planned.inputs, planned.spec.units, 3, padding=1)
            if planned.spec.kind == "conv"
            else nn.Linear(planned.inputs, planned.spec.units)
            for planned in plans
        )
        self._plans = plans

    def forward(self, x: Tensor) -> Tensor:
        """h = G(x): (n, channels, height, width) or (n, units)."""
        for layer, planned in zip(self, self._plans, strict=True):
            x = layer(x if planned.spec.kind == "conv" else x.flatten(1)).relu_()
            x = F.max_pool2d(x, 2) if planned.spec.pool else x
        return x


def build_pretrained(
    architecture: Architecture, state: Mapping[str, Tensor], source: str, device: torch.device
) -> PretrainedLayers:
    """The layers that stand before the others, with weights from `source`; no memory is taken before they fit."""
    plans = plan(replace(architecture, layers=architecture.pretrained), architecture.input_shape)
    with torch.device("meta"):
        layers = PretrainedLayers(plans)
    weights = {
        f"{index}.{part}": fitting(state, index, part, planned.shape(part), source)
        for index, planned in enumerate(plans)
        for part in ("weight", "bias")
    }
    layers.load_state_dict(weights, assign=True)
    return layers.to(device).eval().requires_grad_(False)


def fitting(state: Mapping[str, Tensor], index: int, part: str, shape: tuple[int, ...], source: str) -> Tensor:
    """A layer's weight or bias as `pretrain` writes it, if it has the right shape."""
    values = state.get(f"{index}.{part}")
    if values is None or tuple(values.shape) != tuple(shape):
        found = "nothing" if values is None else tuple(values.shape)
        raise ConfigError(f"{source}: layer {index} needs {part} of shape {tuple(shape)}, found {found}")
    if not bool(torch.isfinite(values).all()):
        raise ConfigError(f"{source}: the {part} of layer {index} has values that are not finite")
    return values.to(torch.float32)
