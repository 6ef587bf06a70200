"""Named settings: `default`, where to start with unknown data; `sharp`, the paper's method alone; the paper's own."""

from __future__ import annotations

from sharp_engine.config import (
    ArchitectureConfig,
    ArchitectureKind,
    LearnerConfig,
    MemoryConfig,
    MetricConfig,
    PredictionConfig,
    TrainingConfig,
)
from sharp_engine.errors import ConfigError

CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def _paper(
    kind: ArchitectureKind,
    tau_min: float,
    phases: int,
    epochs: int,
    batch: int,
    temperature: float,
    neighbours: int,
    ltm: int,
    stm: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> LearnerConfig:
    shape = (1, 28, 28) if kind == "conv-small" else (3, 32, 32)
    return LearnerConfig(
        architecture=ArchitectureConfig(kind=kind, input_shape=shape, fan_in="existing", mean=mean, std=std),
        training=TrainingConfig(
            phases=phases,
            epochs=epochs,
            batch_size=batch,
            temperature=temperature,
            tau_min=tau_min,
            anchor_losses="mean" if kind == "conv-small" else "sum",
        ),
        memory=MemoryConfig(stm_capacity=stm, ltm_per_class=ltm),
        prediction=PredictionConfig(neighbours=neighbours),
    )


PRESETS: dict[str, LearnerConfig] = {
    "default": LearnerConfig(
        training=TrainingConfig(phases=3, epochs=1, min_steps=40, batch_size=128, rest_after=3),
        memory=MemoryConfig(stm_capacity=1000, ltm_per_class=50, holdout=0.05),
        metric=MetricConfig(enabled=True, random_function="cosine", shrinkage=2.0),
        prediction=PredictionConfig(neighbours=25),
    ),
    "sharp": LearnerConfig(
        training=TrainingConfig(phases=3, epochs=1, min_steps=40, batch_size=128),
        memory=MemoryConfig(stm_capacity=1000, ltm_per_class=50, holdout=0.05),
    ),
    "mnist": _paper("conv-small", 0.90, 10, 3, 256, 0.1, 5, 25, 50),
    "fashion-mnist": _paper("conv-small", 0.75, 12, 3, 1024, 0.2, 25, 25, 50),
    "emnist-letters": _paper("conv-small", 0.60, 15, 3, 256, 0.1, 5, 25, 50),
    "cifar10": _paper("vgg-small", 0.70, 15, 5, 256, 0.2, 5, 50, 400, CIFAR10_MEAN, CIFAR10_STD),
    "cifar100": _paper("vgg-small", 0.70, 15, 5, 64, 0.05, 5, 50, 1000, CIFAR100_MEAN, CIFAR100_STD),
}
"""The paper's settings by data set (tables 4 and 5 of its supplement), and ours."""


def preset(name: str) -> LearnerConfig:
    """Settings by name.

    >>> preset("mnist").training.phases
    10
    """
    if name not in PRESETS:
        raise ConfigError(f"no preset {name!r}: there are {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
