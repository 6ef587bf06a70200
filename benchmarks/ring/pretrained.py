"""The layers that a ring's contestants start with where they are pretrained, as in the paper's figure 2.

One network learns another data set with the engine's `pretrain`, by the paper's settings for that data set, and all its
layers but the output are kept: G is those before the paper's cut, and who freezes more takes more of the same network.
The file lies in the output folder under a digest of what it was made from; results depend on a digest of the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import datasets
from benchmarks.datasets import Dataset
from benchmarks.errors import DataError, OptionError
from benchmarks.reporting.runner import ReportProgress
from benchmarks.ring.options import RingOptions
from benchmarks.ring.rivals.contestant import Setup
from benchmarks.ring.rivals.networks import Network, Part, build, pretrained_count, pretrained_fit
from sharp_engine import LearnerConfig, preset, pretrain
from sharp_engine.config import to_dict
from sharp_engine.network.architecture import resolve_architecture


@dataclass(frozen=True)
class Pretrained:
    """Weights that fit the images of a ring."""

    source: str
    """The data set that was learned, or the name of the file that a user brought."""
    path: Path
    digest: str
    """Of the file's bytes."""
    network: Network
    """What rivals load them into."""
    made: dict[str, Any]
    """How, where it is known."""

    def __post_init__(self) -> None:
        wanted = pretrained_count(self.network, "front")
        found = pretrained_fit(self.network, self.path)
        if found < wanted:
            shape = "×".join(map(str, self.network.shape))
            raise OptionError(
                f"{self.path.name} does not fit images of {shape}: G has {wanted} layers, and {found} of them are there"
            )

    def lacks(self, part: Part) -> str | None:
        """Why these weights are too few for a contestant that freezes a part, or nothing."""
        wanted, found = pretrained_count(self.network, part), pretrained_fit(self.network, self.path)
        return f"it freezes {wanted} layers, and {found} are pretrained" if found < wanted else None

    def to_dict(self) -> dict[str, Any]:
        """What figures depend on, as plain JSON values."""
        return {"source": self.source, "digest": self.digest, **self.made}


def prepare(options: RingOptions, dataset: Dataset, output: Path, progress: ReportProgress) -> Pretrained | None:
    """The weights that were asked for: those of a file, or made here unless they lie in `output`."""
    if options.pretrained is None:
        return None
    if dataset.train.x.ndim == 2:
        raise OptionError("pretrained layers are for images, not for vectors")
    setup = Setup(options.dataset, dataset.train.x.shape[1:], len(dataset.classes), (), memory=0, seed=0)
    if not options.pretrained_here:
        path = Path(options.pretrained)
        return Pretrained(path.stem, path, _digest(path.read_bytes()), build(setup), {})
    source = datasets.load(options.pretrained, options.data_root, test=False)
    if source.train.x.shape[1:] != dataset.train.x.shape[1:]:
        raise DataError(
            f"images of {source.name} have the shape {source.train.x.shape[1:]}, those of {dataset.name} "
            f"{dataset.train.x.shape[1:]}"
        )
    config, epochs = settings(source), options.pretrained_epochs
    data = _digest(source.train.x.tobytes() + source.train.y.tobytes())
    recipe = json.dumps([data, to_dict(config), epochs], sort_keys=True)
    path = output / f"pretrained-{source.name}-{_digest(recipe.encode())}.safetensors"
    if not path.is_file():
        _make(source, path, config, epochs, options.threads, progress)
    made = {"epochs": epochs, "examples": len(source.train)}
    return Pretrained(source.name, path, _digest(path.read_bytes()), build(setup), made)


def settings(source: Dataset) -> LearnerConfig:
    """The paper's for a data set, with all layers but the output before the cut: those are kept."""
    config = preset(source.name)
    layers = resolve_architecture(config.architecture, source.train.x.shape[1:]).layers
    return config.with_options({"architecture.cut": len(layers) - 1})


def _make(
    source: Dataset, path: Path, config: LearnerConfig, epochs: int, threads: int, progress: ReportProgress
) -> None:
    title = f"pretraining on {source.name}"
    progress(title, 0.0, float(epochs))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished, before = path.with_suffix(".tmp"), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        pretrain(
            source.train.x, source.train.y, unfinished, config, epochs=epochs,
            observer=lambda epoch, loss: progress(f"{title} · loss {loss:.2f}", float(epoch)),
        )  # fmt: skip
    finally:
        torch.set_num_threads(before)
    os.replace(unfinished, path)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
