"""A fingerprint of what the paper's rules make of made-up data: SHA-256 over every tensor of the network.

Computed by the same steps in another commit: `python -m tests.engine.fingerprint` prints one line per preset.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys

import torch

from sharp_engine import ArchitectureConfig, LayerConfig, Learner, LearnerConfig, preset

PAPER = ("mnist", "fashion-mnist", "emnist-letters", "cifar10", "cifar100")


def tiny(name: str) -> LearnerConfig:
    """A paper's preset, all its rules, with fewer units and smaller images."""
    config = preset(name)
    own = config.architecture
    images = own.kind == "vgg-small"
    layers = [LayerConfig("conv", 6, True), LayerConfig("conv", 6, True)]
    layers += [LayerConfig("conv", 8)] if images else []
    layers += [LayerConfig("linear", 20), LayerConfig("linear", 16)]
    architecture = ArchitectureConfig(
        kind=own.kind,
        input_shape=(3 if images else 1, 8, 8),
        layers=tuple(layers),
        cut=2,
        density=own.density,
        fan_in=own.fan_in,
        mean=own.mean,
        std=own.std,
    )
    training = dataclasses.replace(config.training, batch_size=24)
    return dataclasses.replace(config, architecture=architecture, training=training, device="cpu")


def learned(config: LearnerConfig) -> Learner:
    """Two episodes of two classes."""
    shape = config.architecture.input_shape
    assert shape is not None
    learner = Learner(config)
    generator = torch.Generator().manual_seed(11)
    for first in (0, 2):
        patterns = torch.rand(2, *shape, generator=generator)
        y = torch.arange(2).repeat(24)
        x = 0.7 * patterns[y] + 0.3 * torch.rand(len(y), *shape, generator=generator)
        learner.learn_episode(x, (y + first).tolist())
    return learner


def fingerprint(name: str) -> str:
    """Of all layers' weights, biases, connections and ranks."""
    digest = hashlib.sha256()
    for layer in learned(tiny(name)).network.layers:
        for part in (layer.weight, layer.bias, layer.mask, layer.ranks):
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()


def first_sizes(name: str) -> list[float]:
    """Length of each layer's weights after one phase of one epoch: alike to some digits wherever it is computed."""
    config = tiny(name)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, phases=1, epochs=1))
    return [float(layer.weight.norm()) for layer in learned(config).network.layers]


def arithmetic() -> str:
    """A fingerprint of how this machine rounds: only where it is the same can the other ones be."""
    generator = torch.Generator().manual_seed(5)
    x, w = torch.randn(24, 3, 8, 8, generator=generator), torch.randn(6, 3, 3, 3, generator=generator)
    images = torch.nn.functional.conv2d(x, w, padding=1)
    values = torch.log_softmax(images.flatten(1) @ torch.randn(384, 20, generator=generator), dim=1).exp().sqrt()
    return hashlib.sha256(values.contiguous().numpy().tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in PAPER:
        sys.stdout.write(f"{each} {fingerprint(each)} {[round(size, 4) for size in first_sizes(each)]}\n")
    sys.stdout.write(f"arithmetic {arithmetic()}\n")
