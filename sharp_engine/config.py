"""The settings of a learner: frozen, validated on construction, and convertible to and from plain JSON values.

One dataclass per component. Nothing here reads files, flags or the environment: that is the entry point's work.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sharp_engine.errors import ConfigError

Selection = Literal["covered", "greedy-all"]
AnchorLosses = Literal["mean", "sum"]
RandomFunction = Literal["relu", "cosine"]
FanIn = Literal["possible", "existing"]
Boundaries = Literal["explicit", "automatic"]
ArchitectureKind = Literal["auto", "conv-small", "vgg-small", "mlp", "dictionary", "backbone"]

_T = TypeVar("_T")

_MOST_SHARDS = 256


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {wanted}, not {value!r}")


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """The types of a component's settings; working them out takes longer than all the rest of a config."""
    return typing.get_type_hints(cls)


def _require_choices(config: object) -> None:
    """Every setting that is one of a few words is one of them."""
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type]  # mypy: classes have no hash
        if typing.get_origin(hint) is Literal:
            value, choices = getattr(config, name), typing.get_args(hint)
            _require(value in choices, name, value, "one of " + ", ".join(map(repr, choices)))


@dataclass(frozen=True)
class LayerConfig:
    """One layer of units; every layer ends in a ReLU."""

    kind: Literal["conv", "linear"]
    """`conv`: 3×3 kernels with padding 1. `linear`: sees every input, flattened where a convolution comes before."""
    units: int
    """Output channels of a convolution, outputs of a linear layer."""
    pool: bool = False
    """Whether a 2×2 max-pooling follows (convolutions only)."""

    def __post_init__(self) -> None:
        _require_choices(self)
        _require(self.units >= 1, "units", self.units, "at least 1")
        _require(not (self.pool and self.kind == "linear"), "pool", self.pool, "false for a linear layer")


@dataclass(frozen=True)
class BackboneConfig:
    """A torchvision classification model, cut at a named layer, frozen, as the front of G."""

    model: str
    """Name of the model as torchvision registers it, e.g. `resnet18`."""
    layer: str
    """Name of the node whose output is taken, e.g. `layer3` or `avgpool`."""
    weights: str | None = None
    """A local file of weights (.safetensors, .pt, .pth), one of torchvision's weight names (downloaded by torchvision
    where the network allows), or nothing for random ones."""
    in_snapshots: bool = True
    """Whether snapshots carry the backbone's weights. If not, loading reads `weights` again and compares checksums."""


@dataclass(frozen=True)
class DictionaryConfig:
    """A dictionary of image patches, made from the first episode's images without their labels."""

    atoms: int | None = None
    """K: directions that patches are compared with; each gives two features per cell of the grid, one per sign.
    Absent: 100 for gray images, 400 for coloured ones."""
    patch: int = 6
    """Side of a patch in pixels; images of smaller sides take smaller patches."""
    grid: int | None = None
    """Responses are averaged over grid × grid cells of the image. Absent: 3 for gray images, 2 for coloured ones."""
    patches: int = 60_000
    """How many random patches the dictionary is made from."""

    def __post_init__(self) -> None:
        _require(self.atoms is None or self.atoms >= 1, "atoms", self.atoms, "at least 1")
        _require(self.grid is None or self.grid >= 1, "grid", self.grid, "at least 1")
        _require(self.patch >= 2, "patch", self.patch, "at least 2")
        _require(self.patches >= (self.atoms or 1), "patches", self.patches, f"at least atoms ({self.atoms})")

    def for_channels(self, channels: int) -> DictionaryConfig:
        """The same with atoms and grid chosen, for images of so many channels."""
        atoms, grid = (100, 3) if channels == 1 else (400, 2)
        return dataclasses.replace(
            self, atoms=self.atoms or min(atoms, self.patches), grid=self.grid or grid, patches=self.patches
        )


@dataclass(frozen=True)
class ArchitectureConfig:
    """What the network looks like and how inputs reach it."""

    kind: ArchitectureKind = "auto"
    """A named architecture; `auto` picks one by the input's shape."""
    input_shape: tuple[int, ...] | None = None
    """Shape of one example, channels first; taken from the first batch if absent."""
    layers: tuple[LayerConfig, ...] = ()
    """Replaces the named architecture's own layers (after the backbone, where there is one)."""
    cut: int | None = None
    """How many layers come before the replay cut (G); 0 replays inputs. Absent: the architecture's own."""
    density: float = 0.4
    """Share of connections that exist, in every layer but a first convolution."""
    fan_in: FanIn = "possible"
    """What Kaiming's rule counts when a unit's weights are drawn, at the start and anew after an episode: the
    connections it could have, or those it has. With `possible`, an idle unit that growing has connected more densely
    than others responds louder, and is recruited for that."""
    mean: tuple[float, ...] = ()
    """Subtracted per channel after uint8 was scaled to [0, 1]; one value for all channels or one each; empty: none."""
    std: tuple[float, ...] = ()
    """Divides per channel after `mean`; empty: none."""
    resize: bool = False
    """Whether image files of another size are resized to the input shape by whoever decodes them. Arrays never are."""
    pretrained: str | None = None
    """A file written by `sharp_engine.pretrain`: G's layers are loaded from it and frozen at the highest rank."""
    backbone: BackboneConfig | None = None
    """The pretrained model in front, for kind `backbone`."""
    dictionary: DictionaryConfig = field(default_factory=DictionaryConfig)
    """The patch dictionary in front, for kind `dictionary`."""

    def __post_init__(self) -> None:
        _require_choices(self)
        _require(0.0 < self.density <= 1.0, "density", self.density, "in (0, 1]")
        _require(self.cut is None or self.cut >= 0, "cut", self.cut, "at least 0")
        _require(
            self.input_shape is None or (len(self.input_shape) in (1, 3) and min(self.input_shape) >= 1),
            "input_shape",
            self.input_shape,
            "(features,) or (channels, height, width)",
        )
        _require(all(s > 0 and math.isfinite(s) for s in self.std), "std", self.std, "positive and finite")
        _require(all(math.isfinite(v) for v in self.mean), "mean", self.mean, "finite")
        _require(
            (self.kind == "backbone") == (self.backbone is not None),
            "backbone",
            self.backbone,
            "given for kind 'backbone', and only there",
        )
        _require(
            self.pretrained is None or self.kind != "backbone",
            "pretrained",
            self.pretrained,
            "absent for kind 'backbone'",
        )
        kinds = [layer.kind for layer in self.layers]
        _require(kinds == sorted(kinds), "layers", kinds, "convolutions first, then linear layers")
        _require(kinds[-1:] != ["conv"], "layers", kinds, "linear in the end: representations are vectors")


@dataclass(frozen=True)
class TrainingConfig:
    """How an episode is learned."""

    phases: int = 3
    """π: rewirings per episode."""
    epochs: int = 1
    """ε: passes over the episode's examples per phase."""
    min_steps: int = 0
    """Epochs are added to a phase until it has this many steps: small episodes need more passes. 0: never."""
    batch_size: int = 128
    """n: stream examples per step; as many replayed activations join them."""
    temperature: float = 0.1
    """λ of the supervised contrastive loss."""
    tau_min: float = 0.9
    """τ_min: the least share of a layer's activation that units of rank ≥ 1 cover."""
    tau_period: int = 30
    """k of the cosine schedule of τ."""
    selection: Selection = "greedy-all"
    """`covered`: units of rank ≥ 2 count first (the paper's formula); `greedy-all`: all units in one descending order
    (the published code)."""
    selection_examples: int = 1024
    """Most examples on which activations are summed for selection."""
    anchor_losses: AnchorLosses = "mean"
    """How the losses of a step's anchors are put together: `sum` is the paper's equation, `mean` is usual. Adadelta is
    not indifferent: gradients of the mean are small beside its ε, so its steps are small too, and too small for a deep
    network with few examples."""
    learning_rate: float = 1.0
    """Adadelta's learning rate."""
    cache_mebibytes: int = 1024
    """Most memory for outputs of frozen units, computed once per episode; what does not fit is computed every step."""
    shards: int = 1
    """Parts that a batch is computed in, each by itself, by as many processes as divide them (see
    `training/sharding.py`). The result depends on the shards and not on the processes."""
    rest_after: int = 0
    """With a learned metric: the network rests once its vote has added nothing for so many episodes in a row. 0:
    never."""

    def __post_init__(self) -> None:
        _require_choices(self)
        for name in ("phases", "epochs", "tau_period", "selection_examples"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _require(self.min_steps >= 0, "min_steps", self.min_steps, "at least 0")
        _require(self.cache_mebibytes >= 0, "cache_mebibytes", self.cache_mebibytes, "at least 0")
        _require(self.rest_after >= 0, "rest_after", self.rest_after, "at least 0")
        _require(self.batch_size >= 2, "batch_size", self.batch_size, "at least 2")
        most = min(self.batch_size, _MOST_SHARDS)
        _require(1 <= self.shards <= most, "shards", self.shards, f"1 to {most}: batch_size, at most {_MOST_SHARDS}")
        _require(0 < self.temperature < math.inf, "temperature", self.temperature, "positive")
        _require(0.0 <= self.tau_min <= 1.0, "tau_min", self.tau_min, "in [0, 1]")
        _require(0 < self.learning_rate < math.inf, "learning_rate", self.learning_rate, "positive")

    def tau(self, phase: int) -> float:
        """τ_p for phase p = 1 … π (section 3.2 of the paper)."""
        return max(self.tau_min, 0.5 * (1.0 + math.cos((phase + 1) / self.tau_period * math.pi)))


@dataclass(frozen=True)
class MemoryConfig:
    """What short-term memory and the network's long-term memory keep; see `MetricConfig` for the others."""

    replayed_episodes: int = 1
    """m: how many previous episodes the short-term memory holds; 0 means no replay."""
    stm_capacity: int = 50
    """Most activations that the short-term memory holds between episodes, of one byte per value."""
    ltm_per_class: int = 25
    """Most representations the long-term memory keeps of a class."""
    holdout: float = 0.0
    """Share of each class's examples kept out of training to calibrate the novelty score; 0 uses training examples,
    which makes the score of unseen examples of known classes a little too high."""

    def __post_init__(self) -> None:
        _require(self.replayed_episodes >= 0, "replayed_episodes", self.replayed_episodes, "at least 0")
        _require(self.stm_capacity >= 1, "stm_capacity", self.stm_capacity, "at least 1")
        _require(self.ltm_per_class >= 1, "ltm_per_class", self.ltm_per_class, "at least 1")
        _require(0.0 <= self.holdout <= 0.5, "holdout", self.holdout, "in [0, 0.5]")


@dataclass(frozen=True)
class MetricConfig:
    """The learned metric in which long-term memory compares; see `prediction/metric.py`."""

    enabled: bool = False
    """Whether there is one. Without it the masked vote answers alone, as in the paper. It needs features that never
    change before the first layer: vectors, a patch dictionary or a backbone."""
    random_features: int | None = None
    """Random features that join the stable features. Absent: as many as bring the dimensions to 3000, but at least 1000
    and at most 32 for each stable feature."""
    random_function: RandomFunction = "relu"
    """What random features are of random projections: `relu`, or `cosine`, which no example leaves far behind."""
    shrinkage: float = 1.0
    """Multiplies the shrinkage of the covariance that the data ask for (oracle approximating shrinkage)."""
    floor: float = 0.3
    """Variance between classes along directions that no class has used yet, as a share of the mean over all."""
    few_losses: float = 0.06
    """A class gains a bonus while it has few examples, as large as can be with this share of the examples of well-known
    classes lost to it, and a smaller share the more examples it has: more finds more of what has just been taught. 0:
    none may be lost."""
    kernel_width: float = 0.1
    """How far a correction reaches, in cosine distance."""
    representatives: int = 20
    """Most single memories kept of a class, beside many others; all calibration is done on them."""
    representatives_together: int = 1000
    """While there are few classes, each keeps more, up to so many together: how sure answers may be can't be told from
    fewer."""
    corrections: int = 2000
    """Most corrections kept; beyond it the oldest go."""

    def __post_init__(self) -> None:
        _require_choices(self)
        count = self.random_features
        _require(count is None or count >= 0, "random_features", count, "at least 0")
        for name in ("shrinkage", "kernel_width"):
            _require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "positive")
        _require(0 <= self.floor < math.inf, "floor", self.floor, "at least 0")
        _require(0 <= self.few_losses < 1, "few_losses", self.few_losses, "in [0, 1)")
        _require(
            self.representatives_together >= 0, "representatives_together", self.representatives_together, "at least 0"
        )
        for name in ("representatives", "corrections"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")

    def representatives_of(self, classes: int) -> int:
        """Most single memories kept of each of so many classes.

        >>> MetricConfig().representatives_of(10)
        100
        """
        return max(self.representatives, self.representatives_together // max(classes, 1))

    def random_features_for(self, features: int) -> int:
        """How many random features join so many stable ones."""
        if self.random_features is not None:
            return self.random_features
        return min(max(1000, 3000 - features), 32 * features)


@dataclass(frozen=True)
class PredictionConfig:
    """How memories answer."""

    neighbours: int = 5
    """k of the k-nearest-neighbour vote."""

    def __post_init__(self) -> None:
        _require(self.neighbours >= 1, "neighbours", self.neighbours, "at least 1")


@dataclass(frozen=True)
class StreamConfig:
    """Where episodes end."""

    boundaries: Boundaries = "explicit"
    """`explicit`: the caller ends episodes. `automatic`: the segmenter cuts the stream."""
    blurry: bool = False
    """Episodes overlap and classes come back: idle units are not re-initialised between episodes."""
    min_examples: int = 256
    """Automatic boundaries: an episode has at least this many examples."""
    max_examples: int = 20_000
    """Automatic boundaries: an episode has at most this many examples."""
    window: int = 128
    """Automatic boundaries: how many of the newest examples are compared with the rest of the episode so far."""
    significance: float = 1e-6
    """Automatic boundaries: a change of the label mix less likely than this, by chance, cuts the stream."""
    drift: float = 0.1
    """Automatic boundaries: the least total-variation change of the label mix that cuts the stream."""
    input_shift: float = 1.0
    """Automatic boundaries: how far, in standard deviations, what is seen of the same classes must move to cut."""

    def __post_init__(self) -> None:
        _require_choices(self)
        _require(self.window >= 8, "window", self.window, "at least 8")
        _require(
            self.min_examples >= self.window, "min_examples", self.min_examples, f"at least window ({self.window})"
        )
        _require(
            self.max_examples >= 2 * self.min_examples,
            "max_examples",
            self.max_examples,
            f"at least twice min_examples ({self.min_examples})",
        )
        _require(0 < self.significance < 1, "significance", self.significance, "in (0, 1)")
        _require(0 < self.drift <= 1, "drift", self.drift, "in (0, 1]")
        _require(self.input_shift > 0, "input_shift", self.input_shift, "positive")


@dataclass(frozen=True)
class LearnerConfig:
    """Everything a learner is made from."""

    architecture: ArchitectureConfig = field(default_factory=ArchitectureConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    metric: MetricConfig = field(default_factory=MetricConfig)
    prediction: PredictionConfig = field(default_factory=PredictionConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    seed: int = 0
    """Start of the learner's own random numbers."""
    device: str = "auto"
    """`auto` (cuda, else mps, else cpu), or a torch device."""

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**63, "seed", self.seed, "in [0, 2^63)")

    def with_options(self, options: Mapping[str, Any]) -> LearnerConfig:
        """Return a copy with dotted keys replaced.

        >>> LearnerConfig().with_options({"training.epochs": 4}).training.epochs
        4
        """
        values = to_dict(self)
        for key, value in options.items():
            *path, last = key.split(".")
            place = values
            for name in path:
                if not isinstance(place.get(name), dict):
                    raise ConfigError(f"no such setting: {key!r}")
                place = place[name]
            if last not in place:
                raise ConfigError(f"no such setting: {key!r}")
            place[last] = value
        return from_dict(values)


def to_dict(config: LearnerConfig) -> dict[str, Any]:
    """Plain JSON values of a config; `from_dict` is its inverse."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any]) -> LearnerConfig:
    """Build a config from plain JSON values; unknown keys and wrong types raise ConfigError."""
    return _build(LearnerConfig, values, "config")


def _build(cls: type[_T], values: object, where: str) -> _T:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a table of settings, not {values!r}")
    hints = _hints(cls)  # type: ignore[arg-type]  # as above
    unknown = sorted(str(key) for key in values if key not in hints)
    if unknown:
        raise ConfigError(f"{where} has no setting {unknown[0]!r}")
    try:
        return cls(**{name: _convert(hints[name], value, f"{where}.{name}") for name, value in values.items()})
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _convert(next(a for a in arguments if a is not type(None)), value, where)
    if origin is Literal:
        _require(value in arguments, where, value, "one of " + ", ".join(map(repr, arguments)))
        return value
    if origin is tuple:
        _require(isinstance(value, (list, tuple)), where, value, "a list")
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type[Any], hint), value, where)
    if hint in (int, float) and type(value) is int:
        _require(-(2**63) <= value < 2**63, where, f"a number of {value.bit_length()} bits", "a number of 64 bits")
        return hint(value)
    _require(type(value) is hint, where, value, f"of type {hint.__name__}")
    return value
