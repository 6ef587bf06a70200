"""Snapshots: the whole learner in one safetensors file, with a JSON description in its metadata. Never pickle.

The file is written beside its place, flushed to disk and renamed, so it is complete or absent. Loading trusts nothing:
every tensor's name, type and shape is checked against what the description says, and the description against the
config's own rules, so a file from a stranger can at worst be refused. Nothing is built before the file is seen to hold
it: the memory that reading takes is in proportion to the file, whatever its description claims.

Metadata: `format` = "sharp", `version` = "3", `learner` = the JSON description (see `describe`), `digest` = SHA-256
over description and tensors (see `digest`). Tensors:

    network.{i}.weight|bias|mask|ranks   the full network, layer i
    before.{i}.…                         the same at the start of the episode in progress, where there is one
    stm.{j}.codes|scales                 class j of short-term memory
    ltm.{j}.mask|vectors|reference       class j of long-term memory
    random                               state of the random numbers (and random_before, with an episode in progress)
    episode.x|y|heldout                  the episode in progress (x and y only with pending examples)
    pending.x|y, segment.labels|features observed and not yet learned (only with pending examples)
    backbone.{name}                      the frozen backbone's weights, where the config keeps them in snapshots; or
                                         those of a pretrained G in front of a learned metric

and those of the learned metric (see `snapshot_metric.py`), where there is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from sharp_engine import snapshot_metric
from sharp_engine.config import from_dict, to_dict
from sharp_engine.errors import SharpError, SnapshotError, SnapshotVersionError
from sharp_engine.labels import Label, Labels, as_labels
from sharp_engine.learner import Learner
from sharp_engine.memory.long_term import ClassMemory, LongTermMemory
from sharp_engine.memory.packing import Packed
from sharp_engine.memory.short_term import ShortTermMemory, StoredClass
from sharp_engine.network.architecture import Architecture, resolve_architecture
from sharp_engine.network.backbone import build_backbone, checksum
from sharp_engine.network.pretrained import build_pretrained
from sharp_engine.network.state import Network, plan
from sharp_engine.training.episode import Examples, RunningEpisode

FORMAT = "sharp"
VERSION = 3
_PARTS = {"weight": torch.float32, "bias": torch.float32, "mask": torch.bool, "ranks": torch.int32}

_MOST_EPISODES = 2**31 - 1
_LARGEST_EXAMPLE = 1 << 26
"""Values of one example, or of its activation at the replay cut; no learner of larger ones could have been trained."""
_LARGEST_GRID = 64 << 20
"""Values that long-term memory may take in a predictor, whatever the file holds; larger ones must be in proportion."""
_GRID_PROPORTION = 64


def save(learner: Learner, path: Path, pending: bool) -> bytes:
    """Write a snapshot to `path`: temporary file, flush, rename, flush of the folder. Gives its SHA-256."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors_of(learner, pending).items()}
    words = json.dumps(describe(learner, pending))
    metadata = {"format": FORMAT, "version": str(VERSION), "learner": words, "digest": digest(words, tensors)}
    content = to_bytes(tensors, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return hashlib.sha256(content).digest()


def load(path: Path, device: str | None, verified: bool = False) -> Learner:
    """Read a snapshot, or raise SnapshotError saying what is wrong with it."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            description = read_description(metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise SnapshotError(f"cannot read {path.name} as a snapshot: {error}") from None
    if not verified and metadata.get("digest") != digest(metadata["learner"], tensors):
        raise SnapshotError(f"{path.name} is damaged: its content is not what was saved")
    # Copies: matrix products may differ in the last bit where memory is not aligned as torch aligns it.
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    try:
        return _restore(description, _Tensors(tensors), device)
    except SnapshotError as error:
        raise type(error)(f"{path.name}: {error}") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RuntimeError,
        ArithmeticError,
        MemoryError,
        SharpError,
    ) as error:
        raise SnapshotError(f"{path.name} is damaged: {type(error).__name__}: {error}") from None


def digest(description: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over everything in the file: a bit that flips on a disk must not change what a learner knows."""
    return hashlib.sha256((checksum(tensors) + description).encode()).hexdigest()


def read_description(metadata: dict[str, str]) -> dict[str, Any]:
    """What a file of this format says of its learner, besides tensors; not yet looked at any closer."""
    if metadata.get("format") != FORMAT:
        raise SnapshotError("the file is not a snapshot of a SHARP learner")
    if metadata.get("version") != str(VERSION):
        raise SnapshotVersionError(
            f"snapshot format {metadata.get('version')!r} cannot be read: this version reads {VERSION}; load it with "
            "the version that saved it, or learn again from the examples (Upgrade in docs/operations.md)"
        )
    try:
        description = json.loads(metadata["learner"])
    except (KeyError, ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot's description is damaged: {error}") from None
    if not isinstance(description, dict):
        raise SnapshotError("the snapshot's description is damaged: it is not a table")
    return description


# ---- writing ----------------------------------------------------------------------------------------------------


def describe(learner: Learner, pending: bool) -> dict[str, Any]:
    """Everything that is not a tensor, as JSON values."""
    running = learner.running
    backbone = learner.preprocessor.backbone if learner.architecture is not None else None
    return {
        "config": to_dict(learner.config),
        "input_shape": learner.architecture.input_shape if learner.architecture else None,
        "episodes": learner.episodes,
        "network_episodes": learner.network_episodes,
        "labels": {"kind": learner.labels.kind, "next_id": learner.labels.next_id, "pairs": learner.labels.pairs()},
        "shortfalls": [layer.shortfall for layer in learner.network.layers] if learner.architecture else [],
        "stm": [
            {"class_id": s.class_id, "episode": s.episode}
            for s in (learner.stm.classes if learner.architecture else ())
        ],
        "ltm": [{"class_id": c.class_id, "episode": c.episode, "closeness": c.closeness} for c in learner.ltm.classes],
        "running": None
        if running is None
        else {
            "number": running.number,
            "fingerprint": running.fingerprint,
            "losses": running.losses,
            "seconds": running.seconds,
            "trains": running.trains,
            "shortfalls": [layer.shortfall for layer in running.before.layers],
        },
        "metric": snapshot_metric.describe(learner),
        "pending": pending,
        "found": learner.found if pending else [],
        "backbone": checksum(backbone.state_dict()) if backbone is not None else None,
    }


def tensors_of(learner: Learner, pending: bool) -> dict[str, Tensor]:
    """Everything that is a tensor, by the name it has in the file."""
    tensors: dict[str, Tensor] = {"random": learner.generator.get_state()}
    if learner.architecture is None:
        return tensors
    networks = {"network": learner.network}
    running = learner.running
    if running is not None:
        networks["before"] = running.before
        tensors |= {"random_before": running.random_before, "episode.heldout": running.heldout}
        if pending and running.examples is not None:
            tensors |= {"episode.x": running.examples.x, "episode.y": running.examples.y}
    for prefix, network in networks.items():
        for i, layer in enumerate(network.layers):
            tensors |= {f"{prefix}.{i}.{part}": getattr(layer, part) for part in _PARTS}
    for j, stored in enumerate(learner.stm.classes):
        tensors |= {f"stm.{j}.{part}": getattr(stored.packed, part) for part in ("codes", "scales")}
    for j, memory in enumerate(learner.ltm.classes):
        tensors |= {f"ltm.{j}.{part}": getattr(memory, part) for part in ("mask", "vectors", "reference")}
    tensors |= snapshot_metric.tensors_of(learner)
    if pending and learner.pending:
        tensors["pending.x"] = torch.cat([part.x for part in learner.pending])
        tensors["pending.y"] = torch.cat([part.y for part in learner.pending])
        tensors |= {"segment.labels": learner.segmenter.labels, "segment.features": learner.segmenter.features}
    backbone = learner.config.architecture.backbone
    if learner.preprocessor.backbone is not None and (backbone is None or backbone.in_snapshots):
        tensors |= {f"backbone.{name}": value for name, value in learner.preprocessor.backbone.state_dict().items()}
    return tensors


# ---- reading ----------------------------------------------------------------------------------------------------


class _Tensors:
    """The file's tensors, given out only in the type and shape that is expected."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, dtype: torch.dtype | None, shape: tuple[int | None, ...]) -> Tensor:
        """The tensor of that name; `None` in the shape stands for any length, `None` as type for uint8 or float32."""
        if name not in self._tensors:
            raise SnapshotError(f"tensor {name} is missing")
        tensor = self._tensors.pop(name)
        fits = len(tensor.shape) == len(shape) and all(
            w is None or w == s for w, s in zip(shape, tensor.shape, strict=True)
        )
        right_type = tensor.dtype == dtype if dtype is not None else tensor.dtype in (torch.uint8, torch.float32)
        if not fits or not right_type:
            raise SnapshotError(f"tensor {name} is {tensor.dtype} {tuple(tensor.shape)}, expected {dtype} {shape}")
        if tensor.dtype.is_floating_point and not bool(torch.isfinite(tensor).all()):
            raise SnapshotError(f"tensor {name} has values that are not finite")
        return tensor

    def expect(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        """Raise unless the file has that tensor in just this type and shape; leaves it there."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.dtype != dtype or tuple(tensor.shape) != shape:
            found = "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
            raise SnapshotError(f"tensor {name} is {found}, expected {dtype} {shape}")

    def take_prefix(self, prefix: str) -> dict[str, Tensor]:
        """All tensors under a prefix, without it."""
        names = [name for name in self._tensors if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._tensors.pop(name) for name in names}

    def require_empty(self) -> None:
        """Raise if the file has anything nobody asked for."""
        if self._tensors:
            raise SnapshotError(f"unexpected tensor {sorted(self._tensors)[0]}")


def _restore(description: dict[str, Any], tensors: _Tensors, device: str | None) -> Learner:
    values = description["config"]
    if device is not None:
        values = {**values, "device": device}
    config = from_dict(values)
    blank = to_dict(config)
    # Weights come from the file: neither the pretrained G nor the shape of the first batch is needed again.
    blank["architecture"] |= {"input_shape": None}
    learner = Learner(from_dict(blank))
    learner.config = config
    learner.labels = _labels(description["labels"])
    learner.episodes = _count(description["episodes"])
    if learner.episodes > _MOST_EPISODES:
        raise SnapshotError(f"{learner.episodes} episodes cannot have been learned")
    learner.network_episodes = _count(description["network_episodes"])
    if learner.network_episodes > learner.episodes:
        raise SnapshotError("the network cannot have learned more episodes than there were")
    if description["input_shape"] is not None:
        _restore_built(learner, description, tensors)
    learner.generator.set_state(tensors.take("random", torch.uint8, (None,)))
    tensors.require_empty()
    return learner


def _restore_built(learner: Learner, description: dict[str, Any], tensors: _Tensors) -> None:
    architecture = learner.config.architecture
    shape = tuple(_count(side) for side in description["input_shape"])
    if len(shape) not in (1, 3) or not 1 <= math.prod(shape) <= _LARGEST_EXAMPLE:
        raise SnapshotError(f"examples cannot have the shape {shape}")
    metric = learner.config.metric
    resolved = resolve_architecture(architecture, shape, metric.enabled)
    backbone: nn.Module | None = None
    if architecture.backbone is not None:
        state = tensors.take_prefix("backbone.extractor.") if architecture.backbone.in_snapshots else None
        backbone = build_backbone(architecture.backbone, learner.device, state)
    elif resolved.pretrained:
        backbone = build_pretrained(resolved, tensors.take_prefix("backbone."), "the snapshot", learner.device)
    if backbone is not None and checksum(backbone.state_dict()) != description["backbone"]:
        raise SnapshotError("the backbone's weights are not the ones this learner was trained with")
    features = learner.preprocessor_for(resolved, backbone).shape_of_features(shape)
    _expect_network(resolved, features, tensors)
    if metric.enabled:
        snapshot_metric.expect_dimensions(features[0] + metric.random_features_for(features[0]), tensors)
    learner.build(shape, backbone, load_weights=False)
    learner.network = _network(learner.network, "network", description["shortfalls"], tensors)
    if learner.knowledge is not None:
        snapshot_metric.restore(learner, description["metric"], tensors, _count)
    learner.stm = _stm(learner, description["stm"], tensors)
    learner.ltm = _ltm(learner, description["ltm"], tensors)
    known = {class_id for class_id, _ in learner.labels.pairs()}
    held = {stored.class_id for stored in learner.stm.classes} | {memory.class_id for memory in learner.ltm.classes}
    if not held <= known:
        raise SnapshotError(f"classes without a label: {sorted(held - known)}")
    if description["running"] is not None:
        learner.running = _running(learner, description["running"], tensors)
    if "pending.x" in tensors:
        examples = _examples("pending", shape, known, tensors)
        learner.pending = [examples]
        labels = tensors.take("segment.labels", torch.int64, (None,))
        seen = tensors.take("segment.features", torch.float32, (len(labels), learner.segmenter.features.shape[1]))
        learner.segmenter.restore(labels, seen)
        learner.found = [_count(length) for length in description["found"]]
        if sum(learner.found) > len(examples.y):
            raise SnapshotError("the found episodes are longer than the pending examples")


def _expect_network(architecture: Architecture, features: tuple[int, ...], tensors: _Tensors) -> None:
    """Raise unless the file holds every layer of the network that its description claims."""
    shape = features
    for i, planned in enumerate(plan(architecture, features)):
        for part, dtype in _PARTS.items():
            tensors.expect(f"network.{i}.{part}", dtype, planned.shape(part))
        if i == architecture.cut and math.prod(shape) > _LARGEST_EXAMPLE:
            raise SnapshotError(f"activations at the replay cut cannot have the shape {shape}")
        shape = planned.out_shape


def _network(fresh: Network, prefix: str, shortfalls: list[int], tensors: _Tensors) -> Network:
    network = fresh.copy()
    if len(shortfalls) != len(network.layers):
        raise SnapshotError(f"{len(shortfalls)} shortfalls for {len(network.layers)} layers")
    for i, (layer, shortfall) in enumerate(zip(network.layers, shortfalls, strict=True)):
        for part in _PARTS:
            wanted = getattr(layer, part)
            setattr(
                layer, part, tensors.take(f"{prefix}.{i}.{part}", wanted.dtype, tuple(wanted.shape)).to(wanted.device)
            )
        layer.shortfall = _count(shortfall)
        if int(layer.mask.sum()) + layer.shortfall != layer.connections:
            raise SnapshotError(f"layer {layer.name} has {int(layer.mask.sum())} connections, not {layer.connections}")
        if bool(layer.weight[~layer.mask].any()) or bool((layer.ranks < 0).any()):
            raise SnapshotError(f"layer {layer.name} has weights without connections or negative ranks")
    return network


def _stm(learner: Learner, entries: list[dict[str, Any]], tensors: _Tensors) -> ShortTermMemory:
    values = math.prod(learner.stm.shape)
    classes = []
    for j, entry in enumerate(entries):
        codes = tensors.take(f"stm.{j}.codes", torch.uint8, (None, values))
        scales = tensors.take(f"stm.{j}.scales", torch.float32, (len(codes), 2))
        classes.append(StoredClass(_count(entry["class_id"]), _count(entry["episode"]), Packed(codes, scales)))
    return replace(learner.stm, classes=tuple(classes))


def _ltm(learner: Learner, entries: list[dict[str, Any]], tensors: _Tensors) -> LongTermMemory:
    units = learner.network.layers[-1].units
    classes = []
    depth = stored = 0
    for j, entry in enumerate(entries):
        mask = tensors.take(f"ltm.{j}.mask", torch.bool, (units,))
        vectors = tensors.take(f"ltm.{j}.vectors", torch.float32, (None, int(mask.sum())))
        reference = tensors.take(f"ltm.{j}.reference", torch.float32, (None,))
        closeness = float(entry["closeness"])
        if not len(vectors) or not math.isfinite(closeness):
            raise SnapshotError(f"class {j} of long-term memory is damaged")
        depth, stored = max(depth, len(vectors)), stored + vectors.numel()
        mask, vectors, reference = (t.to(learner.device) for t in (mask, vectors, reference))
        classes.append(
            ClassMemory(_count(entry["class_id"]), _count(entry["episode"]), mask, vectors, reference, closeness)
        )
    # A predictor lays the memories out in a grid of classes × deepest class × units.
    if len(entries) * depth * units > max(_LARGEST_GRID, _GRID_PROPORTION * stored):
        raise SnapshotError("long-term memory is laid out to take far more room than it holds")
    return LongTermMemory(tuple(classes))


def _running(learner: Learner, entry: dict[str, Any], tensors: _Tensors) -> RunningEpisode:
    assert learner.architecture is not None
    known = {class_id for class_id, _ in learner.labels.pairs()}
    examples = (
        _examples("episode", learner.architecture.input_shape, known, tensors) if "episode.x" in tensors else None
    )
    heldout = tensors.take("episode.heldout", torch.int64, (None,))
    if examples is not None and len(heldout) and not (int(heldout.min()) >= 0 and int(heldout.max()) < len(examples.y)):
        raise SnapshotError("held-out examples lie outside the episode")
    random_before = tensors.take("random_before", torch.uint8, (None,))
    torch.Generator().set_state(random_before)  # raises if it is none
    return RunningEpisode(
        number=_count(entry["number"]),
        examples=examples,
        fingerprint=str(entry["fingerprint"]),
        heldout=heldout,
        before=_network(learner.network, "before", entry["shortfalls"], tensors),
        random_before=random_before,
        trains=bool(entry["trains"]),
        losses=[float(loss) for loss in entry["losses"]],
        seconds=float(entry["seconds"]),
    )


def _examples(prefix: str, shape: tuple[int, ...], known: set[int], tensors: _Tensors) -> Examples:
    x = tensors.take(f"{prefix}.x", None, (None, *shape))
    y = tensors.take(f"{prefix}.y", torch.int64, (len(x),))
    if not set(y.tolist()) <= known:
        raise SnapshotError(f"{prefix} examples have classes without labels")
    return Examples(x, y)


def _labels(entry: dict[str, Any]) -> Labels:
    kind, next_id = entry["kind"], _count(entry["next_id"])
    if kind not in (None, "text", "integer"):
        raise SnapshotError(f"unknown kind of labels: {kind!r}")
    pairs: list[tuple[int, Label]] = [(_count(class_id), as_labels([label])[0]) for class_id, label in entry["pairs"]]
    labels = Labels(pairs, next_id, kind)
    labels.check([label for _, label in pairs])
    if (
        len({i for i, _ in pairs}) < len(pairs)
        or len({label for _, label in pairs}) < len(pairs)
        or any(i >= next_id for i, _ in pairs)
    ):
        raise SnapshotError("labels or their ids are not unique")
    return labels


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise SnapshotError(f"expected a whole number, found {value!r}")
    return value
