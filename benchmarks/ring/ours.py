"""Our learner as a contestant: the engine as a user calls it, with one preset each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.paper.options import PaperOptions
from benchmarks.ring.options import STANDS_FOR
from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup
from benchmarks.ring.rivals.networks import CHANNEL_SCALES
from benchmarks.ring.rivals.settings import LEAST_STEPS
from sharp_engine import Learner, LearnerConfig, Progress, preset

PRETRAINED_ROWS: dict[str, dict[str, Any]] = {
    "emnist-letters": {"training.tau_min": 0.4, "training.temperature": 0.05, "training.batch_size": 512}
}
"""Where the paper's settings behind a pretrained G are others than without (its supplement, tables 3 and 4)."""


class Ours:
    """A learner of the engine."""

    preset = ""
    holds_features = False
    """Whether it keeps single examples as stable features, which of vectors are the vectors."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.learner = Learner(self.config())

    def config(self) -> LearnerConfig:
        """The engine's settings."""
        config = preset(self.preset).with_options({"seed": self.setup.seed, "stream.blurry": self.setup.blurry})
        return self.with_pretrained(config)

    def with_pretrained(self, config: LearnerConfig) -> LearnerConfig:
        """Behind a pretrained G, where there is one: it learned from normalised images."""
        if not self.setup.pretrained:
            return config
        mean, std = CHANNEL_SCALES.get(self.setup.dataset, ((), ()))
        changes = {"pretrained": self.setup.pretrained, "mean": mean, "std": std}
        return config.with_options({f"architecture.{name}": value for name, value in changes.items()})

    def learn(self, x: Inputs, y: Ints) -> None:
        """One episode."""
        self.learner.learn_episode(x, y, observer=self._observe)

    def predict(self, x: Inputs) -> Ints:
        """Without novelty, which nobody else answers."""
        return np.asarray(self.learner.predict(x, novelty=False).labels, dtype=np.int64)

    def kept(self) -> Kept:
        """The snapshot's tensors. Of vectors, short-term memory and single memories are examples as they came."""
        now = self.learner.inspect()
        raw = now.stm_bytes + now.episodic_bytes if self.setup.vectors and self.holds_features else 0
        tensors = safetensors.numpy.load(self._snapshot())
        return Kept([tensors[name] for name in sorted(tensors)], raw)

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "sharp_engine", "preset": self.preset, "architecture": self.learner.inspect().architecture}

    def _observe(self, progress: Progress) -> None:
        if progress.seconds_left is not None:
            self.setup.report(progress.seconds / max(progress.seconds + progress.seconds_left, 1e-9))

    def _snapshot(self) -> bytes:
        with tempfile.TemporaryDirectory(prefix="sharp-ring-") as folder:
            path = Path(folder) / "learner.safetensors"
            self.learner.save(path)
            return path.read_bytes()

    def __getstate__(self) -> dict[str, Any]:
        """To be saved and loaded by the engine's own means."""
        return {"setup": self.setup, "snapshot": self._snapshot()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.setup = state["setup"]
        with tempfile.TemporaryDirectory(prefix="sharp-ring-") as folder:
            path = Path(folder) / "learner.safetensors"
            path.write_bytes(state["snapshot"])
            self.learner = Learner.load(path)


class Default(Ours):
    """Where a user starts: the learned metric, with the network beside it."""

    preset = "default"
    holds_features = True


class NetworkAlone(Ours):
    """The paper's method with our schedule, for data that the paper does not have."""

    preset = "sharp"


class PaperPreset(Ours):
    """The paper's settings and its memory budget for the data set."""

    preset = "paper"

    def config(self) -> LearnerConfig:
        """As `sharp benchmark paper` has it; behind a pretrained G by the paper's rows for that."""
        dataset = self.setup.dataset
        if self.setup.pretrained:
            dataset = STANDS_FOR.get(dataset, dataset)
        options = PaperOptions(dataset, Path(), seeds=(self.setup.seed,))
        config = options.learner_config(self.setup.seed).with_options({"stream.blurry": self.setup.blurry})
        if not self.setup.pretrained:
            return config
        least = {"training.min_steps": LEAST_STEPS.get(self.setup.dataset, config.training.min_steps)}
        return self.with_pretrained(config.with_options({**PRETRAINED_ROWS.get(dataset, {}), **least}))
