"""Function distance regularisation (Benjamin, Rolnick and Kording, 2019), as the paper's comparison sets it.

After each episode some examples are kept with the network's outputs for them, equally many of each class. While later
ones are learned, each step of cross entropy on the new is followed by a step of its own on those kept: down the mean L2
distance, in the space of outputs (softmax), between what the network says of them now and what it said then. Both steps
share one optimizer and its momentum. So does Mammoth, which the paper ran; its option α, which the paper's table names,
is read nowhere in its code, and is not here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup
from benchmarks.ring.rivals.networks import Scale, answers, build, weights
from benchmarks.ring.rivals.settings import MOMENTUM, training


class FunctionDistance:
    """The contestant."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.scale = Scale(setup.dataset)
        self.network = build(setup)
        self.trained = training("fdr", setup.dataset, setup.shape)
        self.optimizer = torch.optim.SGD(self.network.parameters(), self.trained.rate, momentum=MOMENTUM)
        self.memory: dict[int, tuple[Tensor, Tensor]] = {}
        """By class: examples (n, …) and what the network said of them, (n, classes) shares."""

    def learn(self, x: Inputs, y: Ints) -> None:
        """One episode."""
        inputs, labels = self.scale(x), torch.from_numpy(y.copy())
        kept = self._kept_examples()
        self.network.train()
        for epoch in range(self.trained.epochs):
            for index in torch.randperm(len(labels)).split(self.trained.batch):
                self._step(F.cross_entropy(self.network(inputs[index]), labels[index]))
                if kept is not None:
                    chosen = torch.randperm(len(kept[0]))[: self.trained.batch]
                    self._step(function_distance(self.network(kept[0][chosen]), kept[1][chosen]))
            self.setup.report((epoch + 1) / self.trained.epochs)
        self._remember(inputs, labels)

    def predict(self, x: Inputs) -> Ints:
        """By the largest output."""
        return answers(self.network, self.scale(x))

    def kept(self) -> Kept:
        """Weights, examples and what was said of them."""
        examples = [x.numpy() for x, _ in self.memory.values()]
        raw = sum(part.size for part in examples) * (4 if self.setup.vectors else 1)
        return Kept([*weights(self.network), *examples, *(said.numpy() for _, said in self.memory.values())], raw)

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "written from its paper", **self.trained.to_dict(), "distance": "a step of its own"}

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def _kept_examples(self) -> tuple[Tensor, Tensor] | None:
        if not self.memory:
            return None
        examples, said = zip(*self.memory.values(), strict=True)
        return torch.cat(examples), torch.cat(said)

    @torch.no_grad()
    def _remember(self, inputs: Tensor, labels: Tensor) -> None:
        """An equal share for each class; those of a class that comes back are new ones."""
        self.network.eval()
        seen = sorted({*self.memory, *labels.tolist()})
        shares = np.full(len(seen), self.setup.memory // len(seen))
        shares[: self.setup.memory % len(seen)] += 1
        for class_id, share in zip(seen, shares.tolist(), strict=True):
            members = torch.nonzero(labels == class_id).flatten()
            if len(members):
                chosen = inputs[members[torch.randperm(len(members))[:share]]]
                self.memory[class_id] = chosen, self.network(chosen).softmax(1)
            else:
                examples, said = self.memory[class_id]
                self.memory[class_id] = examples[:share], said[:share]


def function_distance(logits: Tensor, said: Tensor) -> Tensor:
    """Mean L2 distance between the shares that outputs (n, classes) give and those that were said.

    >>> round(float(function_distance(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))), 4)
    0.7071
    """
    distances: Tensor = torch.linalg.vector_norm(logits.softmax(1) - said, dim=1)
    return distances.mean()
