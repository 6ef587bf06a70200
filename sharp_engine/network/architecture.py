"""From a config and an input shape to a list of layers, and how inputs are normalised on their way in.

The named architectures are those of the paper (supplementary listings 1 and 2), an `mlp` for vectors, and small heads
behind a patch dictionary or a frozen backbone. `auto` picks by the input's shape and says what it picked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from sharp_engine.config import ArchitectureConfig, ArchitectureKind, LayerConfig
from sharp_engine.errors import ConfigError

log = logging.getLogger(__name__)

LARGEST_SMALL_IMAGE = 64
"""Side, in pixels, above which `auto` asks for a backbone."""


def _conv(units: int, pool: bool = False) -> LayerConfig:
    return LayerConfig("conv", units, pool)


def _linear(units: int) -> LayerConfig:
    return LayerConfig("linear", units)


_NAMED: dict[str, tuple[tuple[LayerConfig, ...], int]] = {
    "conv-small": ((_conv(16, True), _conv(16, True), _linear(500), _linear(500)), 2),
    "vgg-small": (
        (
            *(_conv(64), _conv(64, True), _conv(64), _conv(64, True)),
            *(_conv(128), _conv(128), _conv(128, True), _linear(1024), _linear(1024)),
        ),
        4,
    ),
    "mlp": ((_linear(500), _linear(500), _linear(500)), 1),
    "dictionary": ((_linear(500), _linear(500)), 0),
    "backbone": ((_linear(1000), _linear(1000)), 0),
}


@dataclass(frozen=True)
class Architecture:
    """What was chosen: the layers, the cut between G and F, and the shape of an example."""

    kind: ArchitectureKind
    input_shape: tuple[int, ...]
    layers: tuple[LayerConfig, ...]
    cut: int
    pretrained: tuple[LayerConfig, ...] = ()
    """With a learned metric: pretrained layers that stand before the others, and give them stable features."""

    def describe(self) -> str:
        """One line for people.

        >>> resolve_architecture(ArchitectureConfig(), (1, 28, 28)).describe()
        'conv-small for 1×28×28: conv16-pool, conv16-pool | linear500, linear500'
        """
        g, f = (_words(layers) for layers in (self.layers[: self.cut], self.layers[self.cut :]))
        if self.pretrained:
            g = f"pretrained {_words(self.pretrained)}"
        shape = "×".join(map(str, self.input_shape))
        return f"{self.kind} for {shape}: {g or 'replay of inputs'} | {f}"


def _words(layers: tuple[LayerConfig, ...]) -> str:
    return ", ".join(f"{layer.kind}{layer.units}{'-pool' if layer.pool else ''}" for layer in layers)


def resolve_architecture(
    config: ArchitectureConfig, input_shape: tuple[int, ...], stable: bool = False
) -> Architecture:
    """Choose layers and cut for an input shape, or raise ConfigError saying what does not fit.

    `stable`: the first layer must see features that never change, and the cut comes before it. What a pretrained G
    gives are such features; of the layers behind it those stay that see vectors.
    """
    trained_before = config.pretrained is not None
    kind = config.kind if config.kind != "auto" else _pick(input_shape, stable and not trained_before)
    own_layers, own_cut = _NAMED[kind]
    if stable and not trained_before:
        if kind not in ("mlp", "dictionary", "backbone") or config.cut:
            raise ConfigError(
                f"a learned metric needs features that never change before the first layer: {kind} with cut "
                f"{config.cut if config.cut is not None else own_cut} has none"
            )
        own_cut = 0
    layers = config.layers or own_layers
    cut = config.cut if config.cut is not None else min(own_cut, len(layers) - 1)
    if cut >= len(layers):
        raise ConfigError(f"cut must leave a layer behind it: {cut} of {len(layers)} layers")
    if trained_before and cut == 0:
        raise ConfigError("pretrained needs a G to load: cut must be at least 1, not 0")
    if trained_before and kind == "dictionary":
        raise ConfigError("pretrained is for the layers of a G, and a dictionary is made from the first episode")
    if kind == "dictionary" and not stable:
        raise ConfigError("the dictionary is for learners with a learned metric: set metric.enabled")
    if kind in ("conv-small", "vgg-small", "dictionary") and len(input_shape) != 3:
        raise ConfigError(f"{kind} needs images (channels, height, width), not {input_shape}")
    architecture = Architecture(kind, input_shape, layers, cut)
    if stable and trained_before:
        behind = tuple(layer for layer in layers[cut:] if layer.kind == "linear")
        architecture = Architecture(kind, input_shape, behind, 0, pretrained=layers[:cut])
    if config.kind == "auto":
        log.info("auto picked %s", architecture.describe())
    return architecture


def _pick(input_shape: tuple[int, ...], stable: bool) -> ArchitectureKind:
    if len(input_shape) == 1:
        return "mlp"
    channels, height, width = input_shape
    if max(height, width) > LARGEST_SMALL_IMAGE:
        raise ConfigError(
            f"images of {height}×{width} need a pretrained backbone: set architecture.kind to 'backbone' "
            f"(without one, at most {LARGEST_SMALL_IMAGE}×{LARGEST_SMALL_IMAGE})"
        )
    if min(height, width) < 4:
        return "mlp"
    if stable:
        return "dictionary"
    return "conv-small" if channels == 1 or min(height, width) < 8 else "vgg-small"


class Normaliser:
    """Turns examples as they come (uint8 or float, channels first) into what the first layer sees."""

    def __init__(self, config: ArchitectureConfig, input_shape: tuple[int, ...], device: torch.device) -> None:
        channels = input_shape[0]
        for name, values in (("mean", config.mean), ("std", config.std)):
            if len(values) not in (0, 1, channels):
                raise ConfigError(f"{name} must have one value or {channels}, not {len(values)}")
        shape = (-1,) + (1,) * (len(input_shape) - 1)
        self._mean = torch.tensor(config.mean, device=device).view(shape) if config.mean else None
        self._std = torch.tensor(config.std, device=device).view(shape) if config.std else None

    def __call__(self, x: Tensor) -> Tensor:
        """Scale uint8 to [0, 1], then subtract the mean and divide by the deviation."""
        x = x.float().div_(255.0) if x.dtype == torch.uint8 else x.float()  # (n, …)
        if self._mean is not None:
            x = x - self._mean
        if self._std is not None:
            x = x / self._std
        return x
