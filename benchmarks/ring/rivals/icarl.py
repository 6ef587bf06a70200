"""Avalanche's iCaRL as a contestant, with the loss of its paper: over the classes seen so far.

Avalanche averages the loss over every output there will ever be. Its paper sums it over the classes up to now, and
Mammoth, which the SHARP paper ran, cuts them there. With two of ten classes seen, Avalanche's gradient is a fifth
of theirs, and the rate of the paper's comparison was tuned for theirs. So the head shows only the outputs of classes
seen; classes are numbered in the order they come, which makes those the first ones. Everything else is the library's:
distillation, herding, the nearest mean of exemplars.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from avalanche.training.supervised import ICaRL
from torch import Tensor, nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Setup
from benchmarks.ring.rivals.library import EVAL_BATCH, Embedding, Strategy


class SeenOutputs(nn.Module):
    """The first outputs of a layer. How many is part of the state, which the library copies to remember a model."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.count: Tensor
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """(n, count)."""
        logits: Tensor = self.layer(x)
        return logits[:, : int(self.count)]


class Icarl(Strategy):
    """iCaRL. Grey images come as rows, so that the library does not average them with their mirror images."""

    method = "icarl"

    def __init__(self, setup: Setup) -> None:
        self.order = np.array([class_id for episode in setup.sequence for class_id in episode])
        """Classes in the order they come."""
        self.places = np.argsort(self.order)
        """Of each class in that order."""
        super().__init__(setup)

    def make(self) -> Any:
        """Of the library."""
        self.head = SeenOutputs(self.network.head)
        common = {name: value for name, value in self.common().items() if name != "model"}
        return ICaRL(
            feature_extractor=Embedding(self.network),
            classifier=self.head,
            memory_size=self.setup.memory,
            buffer_transform=None,
            fixed_memory=True,
            **common,
        )

    def learn(self, x: Inputs, y: Ints) -> None:
        """One experience, after room was made for its classes."""
        self.head.count += len(np.unique(y))
        super().learn(x, y)

    def experience(self, x: Inputs, y: Ints) -> Any:
        """An episode with the class order that the library asks for here."""
        experience = super().experience(x, self.places[y])
        experience.benchmark = SimpleNamespace(
            n_classes_per_exp=[len(episode) for episode in self.setup.sequence],
            classes_order=list(range(self.setup.classes)),
        )
        return experience

    def tensor(self, x: Inputs) -> Tensor:
        """Grey images as rows."""
        grey = not self.setup.vectors and self.setup.shape[0] == 1
        return self.scale(x).flatten(1) if grey else self.scale(x)

    def memory(self) -> list[Tensor]:
        """The exemplars."""
        (plugin,) = (p for p in self.strategy.plugins if hasattr(p, "x_memory"))
        return list(plugin.x_memory)

    def predict(self, x: Inputs) -> Ints:
        """By the nearest mean of exemplars, among the classes that were seen: others have means of zero."""
        seen, model = int(self.head.count), self.strategy.model.eval()
        with torch.no_grad():
            found = [model(part)[:, :seen].argmax(1) for part in self.tensor(x).split(EVAL_BATCH)]
        labels: Ints = self.order[torch.cat(found).numpy()]
        return labels

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {**super().settings(), "loss over": "the classes seen"}
