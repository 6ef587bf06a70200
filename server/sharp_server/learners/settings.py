"""From a LearnerConfig of the wire to the engine's config, and back to settings that are shown.

Device, boundaries and files are the server's: a client names neither a device nor a path.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import sharp_engine as engine
from sharp.v1 import label_pb2, learner_pb2
from sharp_engine.config import ArchitectureConfig, BackboneConfig, to_dict
from sharp_engine.network.architecture import LARGEST_SMALL_IMAGE, resolve_architecture
from sharp_engine.network.backbone import build_backbone, feature_shape
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError, redact
from sharp_server.learners.inputs import MOST_SIDES, check_shape
from sharp_server.learners.weights import find_weights

_MOST_OVERRIDES = 100
_LONGEST_OVERRIDE = 10_000
_NOT_TAKEN = ("device", "stream.boundaries", "seed", "architecture.input_shape")
_FILES = ("architecture.pretrained", "architecture.backbone.weights")
_KINDS: dict[int, str] = {label_pb2.LABEL_KIND_TEXT: "text", label_pb2.LABEL_KIND_INTEGER: "integer"}
KIND_MESSAGES: dict[str | None, label_pb2.LabelKind.ValueType] = {
    None: label_pb2.LABEL_KIND_UNSPECIFIED,
    "text": label_pb2.LABEL_KIND_TEXT,
    "integer": label_pb2.LABEL_KIND_INTEGER,
}


def label_kind(config: learner_pb2.LearnerConfig) -> str | None:
    """The kind of labels that a configuration settles, if any."""
    if config.label_kind and config.label_kind not in _KINDS:
        raise _invalid("label_kind", config.label_kind, "unknown kind of labels")
    return _KINDS.get(config.label_kind)


def stored_label_kind(config: bytes) -> str | None:
    """The same of a configuration as the journal keeps it."""
    return label_kind(learner_pb2.LearnerConfig.FromString(config))


def names_files(config: learner_pb2.LearnerConfig) -> bool:
    """Whether a configuration may name files, which are then looked for on the disk."""
    return any(key in config.overrides for key in (*_FILES, "architecture.backbone"))


def engine_config(config: learner_pb2.LearnerConfig, server: ServerConfig) -> engine.LearnerConfig:
    """The engine's config of a new learner, or CONFIG_INVALID."""
    name = config.preset or "default"
    if name not in engine.PRESETS:
        known = ", ".join(sorted(engine.PRESETS))
        raise _invalid("preset", name, f"no such preset; there are {known}")
    if len(config.overrides) > _MOST_OVERRIDES:
        raise _invalid("overrides", len(config.overrides), f"at most {_MOST_OVERRIDES} entries are taken")
    options: dict[str, Any] = {}
    for key, text in config.overrides.items():
        if key in _NOT_TAKEN:
            raise _invalid(key, text, "this setting is not taken here")
        if len(text) > _LONGEST_OVERRIDE:
            raise _invalid(redact(key), text, f"a value has at most {_LONGEST_OVERRIDE} characters")
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        options[key] = _with_file(key, value, server)
    if config.seed >= 1 << 63:
        raise _invalid("seed", config.seed, "a seed is less than 2^63")
    options["seed"] = config.seed
    if config.input_shape:
        shape = tuple(config.input_shape[:MOST_SIDES])
        if min(shape) < 1 or len(shape) not in (1, 3):
            raise _invalid("input_shape", list(shape), "must be [features] or [channels, height, width]")
        check_shape(shape, server.limits, "config.input_shape")
        options["architecture.input_shape"] = list(shape)
    options["device"] = "cpu"  # where it computes is decided by whoever loads it
    try:
        made = engine.PRESETS[name].with_options(options)
    except engine.ConfigError as error:
        culprit = next((key for key in options if key in str(error) or key.split(".")[-1] in str(error)), "overrides")
        raise _invalid(culprit, options.get(culprit, ""), redact(error)) from None
    if made.architecture.input_shape is not None:
        check_architecture(made, made.architecture.input_shape)
    elif made.architecture.backbone is not None:
        check_backbone(made.architecture.backbone)
    return made


def _invalid(setting: str, value: object, why: str) -> RpcError:
    return RpcError("CONFIG_INVALID", f"{setting}: {why}", fields=(f"config.{setting}",), setting=setting, value=value)


def _with_file(key: str, value: Any, server: ServerConfig) -> Any:
    """Replace the name of a file by its path on this server."""
    if key == "architecture.backbone" and isinstance(value, dict) and value.get("weights") is not None:
        return {**value, "weights": _weights(key, value["weights"], server)}
    if key in _FILES and value is not None:
        return _weights(key, value, server)
    return value


def _weights(key: str, name: Any, server: ServerConfig) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise _invalid(key, name, "takes the name of a file of weights on the server, never a path")
    path = find_weights(name, server)
    if path is not None:
        return str(path)
    if key == "architecture.pretrained" or "." in name:
        where = "in its folder of weights, and nobody brought it" if server.data.weights_folder else "that was brought"
        raise _invalid(key, name, f"the server has no file {name!r} {where}: bring it with ImportWeights")
    return name


def check_architecture(config: engine.LearnerConfig, shape: tuple[int, ...]) -> None:
    """Whether a learner of this config takes examples of this shape, found without building anything."""
    architecture = config.architecture
    if architecture.backbone is not None:
        check_backbone(architecture.backbone)
    if architecture.kind == "auto" and len(shape) == 3 and max(shape[1:]) > LARGEST_SMALL_IMAGE:
        largest = f"{LARGEST_SMALL_IMAGE}×{LARGEST_SMALL_IMAGE}"
        raise RpcError(
            "BACKBONE_NEEDED",
            f"images of {shape[1]}×{shape[2]} need a pretrained backbone: set architecture.kind and "
            f"architecture.backbone (without one, at most {largest})",
            shape="×".join(map(str, shape)),
            largest=largest,
        )
    try:
        resolve_architecture(architecture, shape, config.metric.enabled)
    except engine.ConfigError as error:
        raise _invalid("architecture", list(shape), redact(error)) from None


def teaching_refusal(config: engine.LearnerConfig, shape: tuple[int, ...] | None, episodes: int) -> RpcError | None:
    """Why single examples can't be taught to a learner that has learned so many episodes; None: they can."""
    if not config.metric.enabled:
        return RpcError("METRIC_NEEDED", "the learner has no learned metric (metric.enabled is false): send episodes")
    if not episodes and shape is not None and _needs_episode(config, shape):
        message = "images are taught one by one once a first episode was learned, which shows what they look like"
        return RpcError("EPISODE_NEEDED", message)
    return None


@functools.lru_cache(maxsize=1024)
def _needs_episode(config: engine.LearnerConfig, shape: tuple[int, ...]) -> bool:
    """Whether stable features are fitted to a first episode; a shape that is refused elsewhere needs none."""
    try:
        return resolve_architecture(config.architecture, shape, True).kind == "dictionary"
    except engine.ConfigError:
        return False


def check_backbone(backbone: BackboneConfig) -> None:
    """Whether there is such a model at all; its layer is looked for when it is built, in training."""
    from torchvision import models

    if backbone.model not in models.list_models(module=models):
        raise _invalid("architecture.backbone", backbone.model, "torchvision has no such model")


def check_backbone_works(architecture: ArchitectureConfig) -> None:
    """Whether the backbone can be built, with its weights and its layer, and takes the input shape. Takes a while."""
    assert architecture.backbone is not None
    device = torch.device("cpu")
    try:
        backbone = build_backbone(architecture.backbone, device)
        if architecture.input_shape is not None:
            feature_shape(backbone, architecture.input_shape, device)
    except engine.ConfigError as error:
        raise _invalid("architecture.backbone", architecture.backbone.model, redact(error)) from None
    except OSError:  # torchvision's own weights, and no way to them
        name = architecture.backbone.weights
        why = f"the weights {redact(name)} can't be downloaded here: put them into the server's folder of weights"
        raise _invalid("architecture.backbone", name, why) from None


def differences(
    config: learner_pb2.LearnerConfig, there: engine.LearnerConfig, shape: tuple[int, ...] | None, server: ServerConfig
) -> list[str]:
    """What a configuration says, and a learner that is there already does otherwise, in words."""
    wanted, has = shown(engine_config(config, server)), shown(there)
    found = [f"{key} is {has[key]}, not {wanted[key]}" for key in config.overrides if has.get(key) != wanted.get(key)]
    if config.input_shape and shape is not None and tuple(config.input_shape) != shape:
        asked = "×".join(map(str, config.input_shape))
        found.append(f"its examples are {'×'.join(map(str, shape))}, not {asked}")
    return found


@functools.lru_cache(maxsize=1024)
def shown(config: engine.LearnerConfig) -> Mapping[str, str]:
    """Every setting in force, by its dotted name, in JSON; files by their name only.

    Remembered: status is asked for often, and on the event loop.
    """
    flat: dict[str, str] = {}

    def walk(prefix: str, values: dict[str, Any]) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict) and name != "architecture.backbone":
                walk(f"{name}.", value)
                continue
            if name == "architecture.pretrained" and value is not None:
                value = Path(value).name
            if name == "architecture.backbone" and value and value.get("weights"):
                value = {**value, "weights": Path(value["weights"]).name}
            flat[name] = json.dumps(value)

    walk("", to_dict(config))
    flat.pop("device", None)
    return flat
