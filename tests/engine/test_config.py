"""Settings: validated on construction, plain values there and back, presets that are the paper's."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest

from sharp_engine import (
    PRESETS,
    ArchitectureConfig,
    BackboneConfig,
    ConfigError,
    DictionaryConfig,
    LayerConfig,
    LearnerConfig,
    MemoryConfig,
    MetricConfig,
    PredictionConfig,
    StreamConfig,
    TrainingConfig,
    preset,
)
from sharp_engine.config import from_dict, to_dict
from tests.engine.fixtures import conv, convnet, linear, mlp

NAN, INF = math.nan, math.inf

# ---- what is out of range ---------------------------------------------------------------------------------------

BAD: list[tuple[type[Any], dict[str, list[Any]]]] = [
    (LayerConfig, {"units": [0, -3], "kind": ["dense", ""]}),
    (
        ArchitectureConfig,
        {
            "density": [0.0, -0.1, 1.1, NAN],
            "cut": [-1],
            "input_shape": [(), (0,), (1, 2), (3, 0, 4), (1, 2, 3, 4), (-5,)],
            "mean": [(NAN,), (0.0, INF)],
            "std": [(0.0,), (-1.0,), (NAN,), (1.0, INF)],
            "kind": ["resnet", "Auto"],
            "fan_in": ["all"],
        },
    ),
    (
        DictionaryConfig,
        {
            "atoms": [0, -1],
            "patch": [1, 0],
            "grid": [0, -2],
            "patches": [0, -1],
        },
    ),
    (
        TrainingConfig,
        {
            "phases": [0, -1],
            "epochs": [0],
            "min_steps": [-1],
            "batch_size": [0, 1],
            "temperature": [0.0, -0.1, NAN, INF],
            "tau_min": [-0.1, 1.1, NAN],
            "tau_period": [0],
            "selection": ["all", "Covered"],
            "selection_examples": [0],
            "anchor_losses": ["max"],
            "learning_rate": [0.0, -1.0, NAN, INF],
            "cache_mebibytes": [-1],
            "shards": [0, -1, 129, 300],
            "rest_after": [-1],
        },
    ),
    (
        MemoryConfig,
        {
            "replayed_episodes": [-1],
            "stm_capacity": [0, -5],
            "ltm_per_class": [0],
            "holdout": [-0.1, 0.6, NAN],
        },
    ),
    (
        MetricConfig,
        {
            "random_features": [-1],
            "random_function": ["sine"],
            "shrinkage": [0.0, -1.0, NAN, INF],
            "floor": [-0.1, NAN, INF],
            "few_losses": [-0.1, 1.0, NAN],
            "kernel_width": [0.0, -0.1, NAN, INF],
            "representatives": [0],
            "representatives_together": [-1],
            "corrections": [0, -1],
        },
    ),
    (PredictionConfig, {"neighbours": [0]}),
    (
        StreamConfig,
        {
            "boundaries": ["lost"],
            "window": [7],
            "min_examples": [100],
            "max_examples": [300],
            "significance": [0.0, 1.0, NAN],
            "drift": [0.0, 1.1, NAN],
            "input_shift": [0.0, -1.0, NAN],
        },
    ),
    (LearnerConfig, {"seed": [-1, 2**63]}),
]

CASES = [(component, name, value) for component, names in BAD for name, values in names.items() for value in values]


@pytest.mark.parametrize(("component", "name", "value"), CASES, ids=[f"{c.__name__}.{n}={v}" for c, n, v in CASES])
def test_a_value_out_of_range_is_refused_by_name_and_value(component: type[Any], name: str, value: Any) -> None:
    whole = {"kind": "linear", "units": 3} if component is LayerConfig else {}
    with pytest.raises(ConfigError) as raised:
        component(**{**whole, name: value})
    assert name in str(raised.value) and repr(value) in str(raised.value)


def test_every_component_and_every_setting_with_a_range_is_in_the_list_above() -> None:
    tested = {(component.__name__, name) for component, names in BAD for name in names}
    unrestricted = {
        ("LayerConfig", "pool"),
        ("ArchitectureConfig", "layers"),
        ("ArchitectureConfig", "pretrained"),
        ("ArchitectureConfig", "backbone"),
        ("ArchitectureConfig", "dictionary"),
        ("ArchitectureConfig", "resize"),
        ("MetricConfig", "enabled"),
        ("StreamConfig", "blurry"),
        ("LearnerConfig", "device"),
    }
    parts = {"architecture", "training", "memory", "metric", "prediction", "stream"}
    every = {
        (component.__name__, field.name)
        for component, _ in BAD
        for field in dataclasses.fields(component)
        if not (component is LearnerConfig and field.name in parts)
    }
    assert every == tested | unrestricted


def test_settings_that_contradict_each_other_are_refused() -> None:
    backbone = BackboneConfig("resnet18", "layer1")
    for make, message in (
        (lambda: LayerConfig("linear", 3, pool=True), "pool"),
        (lambda: ArchitectureConfig("backbone"), "backbone"),
        (lambda: ArchitectureConfig("mlp", backbone=backbone), "backbone"),
        (lambda: ArchitectureConfig("backbone", backbone=backbone, pretrained="g"), "pretrained"),
        (lambda: ArchitectureConfig(layers=(linear(3), conv(3), linear(3))), "convolutions first"),
        (lambda: ArchitectureConfig(layers=(conv(3),)), "linear in the end"),
        (lambda: DictionaryConfig(atoms=50, patches=49), "at least atoms .50."),
        (lambda: StreamConfig(window=300), "at least window .300."),
        (lambda: StreamConfig(min_examples=1000, max_examples=1999), "at least twice min_examples .1000."),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


def test_the_ends_of_ranges_are_within_them() -> None:
    ArchitectureConfig(density=1.0, cut=0)
    TrainingConfig(phases=1, epochs=1, batch_size=2, tau_min=0.0, min_steps=0, cache_mebibytes=0)
    TrainingConfig(tau_min=1.0)
    MemoryConfig(replayed_episodes=0, stm_capacity=1, ltm_per_class=1, holdout=0.5)
    MetricConfig(random_features=0, floor=0.0, representatives=1, representatives_together=0, corrections=1)
    DictionaryConfig(atoms=1, patch=2, grid=1, patches=1)
    PredictionConfig(neighbours=1)
    StreamConfig(window=8, min_examples=8, max_examples=16, drift=1.0)
    LearnerConfig(seed=2**63 - 1)


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LearnerConfig().training.epochs = 3  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    import inspect

    from sharp_engine import config

    source = inspect.getsource(config)
    for component, _ in BAD:
        body = source.split(f"class {component.__name__}")[1].split("def __post_init__")[0]
        for field in dataclasses.fields(component):
            if component is LearnerConfig and dataclasses.is_dataclass(getattr(LearnerConfig(), field.name)):
                continue
            after = body.split(f"    {field.name}: ")[1].split("\n", 1)[1]
            assert after.lstrip().startswith('"""'), f"{component.__name__}.{field.name}"


# ---- plain values -----------------------------------------------------------------------------------------------

CONFIGS = [
    *PRESETS.values(),
    LearnerConfig(),
    mlp(),
    convnet(mean=(0.5,), std=(0.25,), input_shape=(1, 8, 8), blurry=True),
    LearnerConfig(
        architecture=ArchitectureConfig("backbone", backbone=BackboneConfig("resnet18", "layer1", "w.pth", False))
    ),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_settings_survive_the_way_through_json(config: LearnerConfig) -> None:
    assert from_dict(to_dict(config)) == config
    back = from_dict(json.loads(json.dumps(to_dict(config))))
    assert back == config and hash(back) == hash(config)


def test_missing_settings_are_the_defaults() -> None:
    assert from_dict({}) == LearnerConfig()
    assert from_dict({"training": {"epochs": 7}}) == LearnerConfig(training=TrainingConfig(epochs=7))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainings": {}}, "config has no setting 'trainings'"),
        ({"training": {"epoch": 3}}, "config.training has no setting 'epoch'"),
        ({"training": 3}, "config.training must be a table of settings, not 3"),
        ({"training": {"epochs": "3"}}, "config.training.epochs must be of type int, not '3'"),
        ({"training": {"epochs": 3.0}}, "config.training.epochs must be of type int, not 3.0"),
        ({"training": {"epochs": True}}, "config.training.epochs must be of type int, not True"),
        ({"training": {"epochs": None}}, "config.training.epochs must be of type int, not None"),
        ({"training": {"temperature": "hot"}}, "config.training.temperature must be of type float, not 'hot'"),
        ({"training": {"temperature": True}}, "config.training.temperature must be of type float, not True"),
        ({"training": {"selection": "any"}}, "config.training.selection must be one of .*'any'"),
        ({"metric": {"enabled": 1}}, "config.metric.enabled must be of type bool, not 1"),
        ({"architecture": {"layers": 3}}, "config.architecture.layers must be a list, not 3"),
        ({"architecture": {"layers": "ab"}}, "config.architecture.layers must be a list, not 'ab'"),
        ({"architecture": {"layers": [{"kind": "linear"}]}}, "units"),
        ({"architecture": {"layers": [3]}}, r"config.architecture.layers\[0\] must be a table of settings, not 3"),
        ({"architecture": {"input_shape": [1, "2", 3]}}, r"input_shape\[1\] must be of type int, not '2'"),
        ({"seed": 1.5}, "config.seed must be of type int, not 1.5"),
        ({"device": 0}, "config.device must be of type str, not 0"),
        ({3: 4}, "config has no setting '3'"),
        ([], "config must be a table of settings"),
        (None, "config must be a table of settings"),
    ],
    ids=str,
)
def test_values_of_the_wrong_kind_are_refused_with_their_place(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(values)


def test_whole_numbers_are_floats_where_floats_are_wanted() -> None:
    assert from_dict({"training": {"temperature": 1}}).training.temperature == 1.0


def test_settings_are_replaced_by_their_dotted_names() -> None:
    config = LearnerConfig().with_options(
        {
            "training.epochs": 4,
            "memory.stm_capacity": 4,
            "seed": 7,
            "architecture.layers": [{"kind": "linear", "units": 3}],
        }
    )
    assert (config.training.epochs, config.memory.stm_capacity, config.seed) == (4, 4, 7)
    assert config.architecture.layers == (linear(3),)
    assert LearnerConfig().with_options({}) == LearnerConfig()


@pytest.mark.parametrize("key", ["epochs", "training.epoch", "training.epochs.x", "", ".", "trainings.epochs"])
def test_a_setting_that_does_not_exist_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"no such setting: {key!r}")):
        LearnerConfig().with_options({key: 3})


# ---- the paper --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "tau_min", "phases", "epochs", "batch", "temperature", "neighbours", "ltm", "stm"),
    [
        ("mnist", "conv-small", 0.90, 10, 3, 256, 0.1, 5, 25, 25 * 2),
        ("fashion-mnist", "conv-small", 0.75, 12, 3, 1024, 0.2, 25, 25, 25 * 2),
        ("emnist-letters", "conv-small", 0.60, 15, 3, 256, 0.1, 5, 25, 25 * 2),
        ("cifar10", "vgg-small", 0.70, 15, 5, 256, 0.2, 5, 50, 200 * 2),
        ("cifar100", "vgg-small", 0.70, 15, 5, 64, 0.05, 5, 50, 100 * 10),
    ],
)
def test_presets_are_the_papers_settings(
    name: str,
    kind: str,
    tau_min: float,
    phases: int,
    epochs: int,
    batch: int,
    temperature: float,
    neighbours: int,
    ltm: int,
    stm: int,
) -> None:
    config = preset(name)
    training, memory = config.training, config.memory
    assert (training.tau_min, training.phases, training.epochs) == (tau_min, phases, epochs)
    assert (training.batch_size, training.temperature) == (batch, temperature)
    assert (training.learning_rate, training.tau_period, training.selection_examples) == (1.0, 30, 1024)
    assert training.min_steps == 0
    assert training.selection == "greedy-all"
    assert (memory.replayed_episodes, memory.stm_capacity, memory.ltm_per_class) == (1, stm, ltm)
    assert config.prediction.neighbours == neighbours
    architecture = config.architecture
    assert (architecture.kind, architecture.density, architecture.fan_in) == (kind, 0.4, "existing")
    images = kind == "vgg-small"
    assert architecture.input_shape == ((3, 32, 32) if images else (1, 28, 28))
    assert len(architecture.mean) == len(architecture.std) == (3 if images else 0)
    assert training.anchor_losses == ("sum" if images else "mean")
    assert not config.stream.blurry and config.stream.boundaries == "explicit"


def test_there_is_a_preset_for_unknown_data() -> None:
    config = preset("default")
    assert config.architecture.kind == "auto" and config.architecture.input_shape is None
    assert config.metric.enabled
    assert not any(settings.metric.enabled for name, settings in PRESETS.items() if name != "default")
    assert set(PRESETS) >= {"default", "sharp", "mnist", "fashion-mnist", "emnist-letters", "cifar10", "cifar100"}


def test_a_preset_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="'imagenet'.*cifar10.*default"):
        preset("imagenet")


def test_tau_follows_half_a_cosine_down_to_its_least() -> None:
    training = TrainingConfig(tau_min=0.6, tau_period=30)
    for phase in range(1, 16):
        assert training.tau(phase) == pytest.approx(max(0.6, (1 + math.cos((phase + 1) / 30 * math.pi)) / 2))
    assert training.tau(1) == pytest.approx(0.98907, abs=1e-5)
    assert training.tau(15) == 0.6
