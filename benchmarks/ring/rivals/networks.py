"""The network that rivals learn with: the paper's shapes (listings 1 and 2), dense, with one output per class.

G is `front`, the layers before the paper's replay cut; F without its output layer is `back`. Outputs are logits. The
listings put a sigmoid there, but no cross entropy can have stood behind it: on validation data ER then ended at 20 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Setup

CHANNEL_SCALES = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Mean and deviation of CIFAR's channels, by which it is normalised, for us as for rivals."""


@dataclass
class Scale:
    """Makes tensors of examples: images in [0, 1], CIFAR normalised; vectors divided by one number.

    That number is the root mean square of the first episode's values, so that rates chosen for images apply.
    """

    dataset: str
    divisor: float | None = None

    def __call__(self, x: Inputs) -> Tensor:
        """(n, …) float32."""
        if x.ndim == 2:
            if self.divisor is None:
                self.divisor = float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) or 1.0
            return torch.from_numpy(np.asarray(x, dtype=np.float32) / np.float32(self.divisor))
        pixels = torch.from_numpy(x).float() / 255.0
        if self.dataset in CHANNEL_SCALES:
            mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in CHANNEL_SCALES[self.dataset])
            pixels = (pixels - mean) / std
        return pixels


class Network(nn.Module):
    """front, then back, then one logit per class."""

    def __init__(
        self, front: nn.Sequential, back: nn.Sequential, features: int, classes: int, shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.front, self.back, self.head = front, back, nn.Linear(features, classes)
        self.features, self.shape = features, shape

    def embed(self, x: Tensor) -> Tensor:
        """What the head sees: (n, features)."""
        z: Tensor = self.back(self.front(x.view(-1, *self.shape)))
        return z

    def forward(self, x: Tensor) -> Tensor:
        """Logits: (n, classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


def build(setup: Setup) -> Network:
    """conv-small for grey images, vgg-small for colour, an mlp of the engine's shape for vectors."""
    if setup.vectors:
        front = nn.Sequential(nn.Linear(setup.shape[0], 500), nn.ReLU())
        return Network(front, nn.Sequential(nn.Linear(500, 500), nn.ReLU()), 500, setup.classes, setup.shape)
    if setup.shape[0] == 1:
        front = _convolutions(1, ((16, True), (16, True)))
        hidden = 500
        back: list[nn.Module] = []
    else:
        front = _convolutions(setup.shape[0], ((64, False), (64, True), (64, False), (64, True)))
        hidden = 1024
        back = list(_convolutions(64, ((128, False), (128, False), (128, True))))
    with torch.no_grad():
        size = nn.Sequential(front, *back)(torch.zeros(1, *setup.shape)).numel()
    layers = nn.Sequential(*back, nn.Flatten(), nn.Linear(size, hidden), nn.ReLU())
    return Network(front, layers, hidden, setup.classes, setup.shape)


def _convolutions(channels: int, layers: Iterable[tuple[int, bool]]) -> nn.Sequential:
    """3×3 convolutions, each with its units and whether it is pooled."""
    modules: list[nn.Module] = []
    for units, pooled in layers:
        modules += [nn.Conv2d(channels, units, 3, padding=1), nn.ReLU()]
        modules += [nn.MaxPool2d(2)] if pooled else []
        channels = units
    return nn.Sequential(*modules)


Part = Literal["front", "convolutions", "hidden"]
"""What a contestant freezes: the layers before the paper's replay cut, all convolutions, all but the output layer."""


def pretrained_count(network: Network, part: Part) -> int:
    """Layers of a part."""
    layers = _hidden_layers(network)
    if part == "front":
        return sum(layer in set(network.front) for layer in layers)
    return sum(part == "hidden" or isinstance(layer, nn.Conv2d) for layer in layers)


def pretrained_fit(network: Network, path: str | Path) -> int:
    """For how many layers, from the first, a file of `sharp_engine.pretrain` has weights of the right shape."""
    state = safetensors.torch.load_file(path)
    for index, layer in enumerate(_hidden_layers(network)):
        wanted = {f"{index}.{name}": tensor.shape for name, tensor in layer.named_parameters()}
        if any(name not in state or state[name].shape != shape for name, shape in wanted.items()):
            return index
    return len(_hidden_layers(network))


def load_pretrained(network: Network, path: str | Path, part: Part) -> None:
    """Put pretrained weights into a part and freeze it; what follows keeps its fresh weights."""
    state, count = safetensors.torch.load_file(path), pretrained_count(network, part)
    if pretrained_fit(network, path) < count:
        raise ValueError(f"{path} has not the {count} layers that are to be frozen")
    for index, layer in enumerate(_hidden_layers(network)[:count]):
        layer.load_state_dict({name: state[f"{index}.{name}"] for name in ("weight", "bias")})
        layer.requires_grad_(False)


def _hidden_layers(network: Network) -> list[nn.Conv2d | nn.Linear]:
    return [layer for layer in (*network.front, *network.back) if isinstance(layer, nn.Conv2d | nn.Linear)]


@torch.no_grad()
def answers(model: nn.Module, x: Tensor, size: int = 512) -> Ints:
    """The class of the largest output."""
    model.eval()
    return torch.cat([model(part).argmax(1) for part in x.split(size)]).numpy().astype(np.int64)


def weights(*modules: nn.Module) -> list[NDArray[Any]]:
    """All parameters and buffers."""
    return [tensor.detach().numpy() for module in modules for tensor in (*module.parameters(), *module.buffers())]
