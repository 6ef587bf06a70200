"""The plain dense network of the same shape, trained as anyone would write it: what the engine is measured against.

No ranks, no masks, no rewiring, no memory but the activations that it is handed for replay. It is given its images as
floats beforehand and its batches by index, so that it wastes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sharp_engine.network.architecture import Architecture


class DenseNetwork(nn.Module):
    """The layers of an architecture as torch's own modules: convolution → ReLU → pooling, linear → ReLU."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        shape = architecture.input_shape
        halves: list[list[nn.Module]] = [[], []]
        for index, layer in enumerate(architecture.layers):
            half = halves[index >= architecture.cut]
            if index == architecture.cut:
                self.cut_shape = shape
            if layer.kind == "conv":
                half += [nn.Conv2d(shape[0], layer.units, 3, padding=1), nn.ReLU()]
                half += [nn.MaxPool2d(2)] if layer.pool else []
                shape = (layer.units, *(side // 2 if layer.pool else side for side in shape[1:]))
            else:
                half += [nn.Flatten()] if len(shape) > 1 else []
                half += [nn.Linear(int(torch.tensor(shape).prod()), layer.units), nn.ReLU()]
                shape = (layer.units,)
        self.g, self.f = (nn.Sequential(*half) for half in halves)
        self.outputs = shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Representations: (n, outputs)."""
        return self.f(self.g(x))  # type: ignore[no-any-return] # nn.Sequential answers Any


def contrastive_loss(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss, the standard formula: mean over anchors of −mean log-probability of positives."""
    z = F.normalize(z, dim=1)
    logits = z @ z.T / temperature
    logits = logits - logits.max(dim=1, keepdim=True).values.detach()
    others = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    positives = (y[:, None] == y[None, :]) & others
    log_prob = logits - torch.log((torch.exp(logits) * others).sum(1, keepdim=True))
    count = positives.sum(1)
    anchors = count > 0
    per_anchor = -(positives * log_prob).sum(1)[anchors] / count[anchors]
    return per_anchor.mean()


def random_replay(network: DenseNetwork, stored: int, y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Activations at the cut to stand for a short-term memory of so many, with the classes of the episode before."""
    classes, device = torch.from_numpy(y).unique(), next(network.parameters()).device
    replayed = classes[torch.arange(stored) % len(classes)]
    return torch.rand(stored, *network.cut_shape).to(device), replayed.to(device)


class DenseTrainer:
    """Trains the dense network on one episode after another, with as many steps of the same size as the engine."""

    def __init__(self, network: DenseNetwork, batch_size: int, temperature: float, learning_rate: float) -> None:
        self._network = network
        self._batch = batch_size
        self._temperature = temperature
        self._rate = learning_rate
        self._optimiser: torch.optim.Optimizer | None = None

    def begin_episode(self, x: Tensor, y: Tensor, replay: tuple[Tensor, Tensor] | None) -> None:
        """Take float images, classes, and activations at the cut (with their classes) to be joined to each batch."""
        device = next(self._network.parameters()).device
        self._x, self._y, self._replay = x.to(device), y.to(device), replay

    def begin_phase(self) -> None:
        """A fresh optimiser, as in the engine."""
        self._optimiser = torch.optim.Adadelta(self._network.parameters(), lr=self._rate)

    def epoch(self) -> None:
        """One pass over the episode."""
        assert self._optimiser is not None
        for index in torch.randperm(len(self._y), device=self._y.device).split(self._batch):
            h, y = self._network.g(self._x[index]), self._y[index]
            if self._replay is not None:
                drawn = torch.randint(len(self._replay[1]), (len(index),), device=index.device)
                h, y = torch.cat((h, self._replay[0][drawn])), torch.cat((y, self._replay[1][drawn]))
            loss = contrastive_loss(self._network.f(h), y, self._temperature)
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
