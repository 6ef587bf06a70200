"""Made-up data and small learners for the engine's tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharp_engine import (
    ArchitectureConfig,
    DictionaryConfig,
    LayerConfig,
    Learner,
    LearnerConfig,
    MemoryConfig,
    MetricConfig,
    Progress,
    TrainingConfig,
)
from sharp_engine.labels import Label

VECTOR = (6,)
IMAGE = (1, 8, 8)

DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]
"""The devices that exist here."""


def pattern(label: Label, shape: tuple[int, ...]) -> Tensor:
    """What all examples of a class have in common; the same whenever the class comes."""
    seed = sum((i + 1) * byte for i, byte in enumerate(repr(label).encode()))
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def examples(
    classes: Sequence[Label], shape: tuple[int, ...] = VECTOR, each: int = 20, seed: int = 0, noise: float = 0.3
) -> tuple[Tensor, list[Label]]:
    """`each` examples of every class, in random order: its pattern and uniform noise on top."""
    generator = torch.Generator().manual_seed(seed)
    y = [label for label in classes for _ in range(each)]
    order = torch.randperm(len(y), generator=generator).tolist()
    y = [y[i] for i in order]
    clean = torch.stack([pattern(label, shape) for label in y])
    return (1.0 - noise) * clean + noise * torch.rand(clean.shape, generator=generator), y


def conv(units: int, pool: bool = False) -> LayerConfig:
    return LayerConfig("conv", units, pool)


def linear(units: int) -> LayerConfig:
    return LayerConfig("linear", units)


def mlp(cut: int = 1, **options: Any) -> LearnerConfig:
    """A small learner of vectors; `options` are fields of any component's config."""
    return _config(ArchitectureConfig("mlp", layers=(linear(10), linear(12), linear(10)), cut=cut), options)


def convnet(cut: int = 2, **options: Any) -> LearnerConfig:
    """A small learner of images."""
    layers = (conv(4, pool=True), conv(5, pool=True), linear(12), linear(10))
    return _config(ArchitectureConfig("conv-small", layers=layers, cut=cut), options)


METRIC = MetricConfig(enabled=True, random_features=8, shrinkage=1.0, floor=0.3, kernel_width=0.1)
DICTIONARY = DictionaryConfig(atoms=6, patch=3, grid=2, patches=400)


def metric(**options: Any) -> LearnerConfig:
    """A small learner of vectors with a learned metric."""
    architecture = ArchitectureConfig("mlp", layers=(linear(12), linear(10)), cut=0)
    return _config(architecture, {"metric": METRIC, "holdout": 0.2, **options})


def pictures(**options: Any) -> LearnerConfig:
    """A small learner of images with a patch dictionary and a learned metric."""
    architecture = ArchitectureConfig("dictionary", layers=(linear(12), linear(10)), dictionary=DICTIONARY)
    return _config(architecture, {"metric": METRIC, "holdout": 0.2, **options})


def _config(architecture: ArchitectureConfig, options: dict[str, Any]) -> LearnerConfig:
    config = LearnerConfig(
        architecture=architecture,
        training=TrainingConfig(phases=2, epochs=1, batch_size=16),
        memory=MemoryConfig(stm_capacity=12, ltm_per_class=6),
        device="cpu",
    )
    return change(config, **options)


def change(config: LearnerConfig, **options: Any) -> LearnerConfig:
    """The config with fields of its components replaced by name, wherever they are."""
    for name, value in options.items():
        if name in {field.name for field in dataclasses.fields(config)}:
            config = dataclasses.replace(config, **{name: value})
            continue
        homes = [
            part.name
            for part in dataclasses.fields(config)
            if dataclasses.is_dataclass(component := getattr(config, part.name))
            and name in {field.name for field in dataclasses.fields(component)}
        ]
        assert len(homes) == 1, f"no component, or more than one, has a setting {name!r}: {homes}"
        component = dataclasses.replace(getattr(config, homes[0]), **{name: value})
        config = dataclasses.replace(config, **{homes[0]: component})
    return config


def trained(
    config: LearnerConfig,
    episodes: Sequence[Sequence[Label]] = ((0, 1), (2, 3), (4, 5)),
    shape: tuple[int, ...] = VECTOR,
    each: int = 20,
) -> Learner:
    """A learner that has learned these episodes of classes."""
    learner = Learner(config)
    for number, classes in enumerate(episodes):
        learner.learn_episode(*examples(classes, shape, each, seed=number))
    return learner


class CancelAfter:
    """A cancellation that comes when it has been asked for `count` times."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


class Recorder:
    """An observer that keeps every report."""

    def __init__(self) -> None:
        self.reported: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.reported.append(progress)
