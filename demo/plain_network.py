"""What forgetting looks like: an ordinary network of the same shape, fine-tuned on one episode after another.

Everything it can have in common with the learner it has: the layers, the examples and their episodes, the batch size,
the number of passes, the optimiser. What it has not: sparse ranked units, memories, a metric learned from them. It is
asked about classes it has seen only, which is the kinder way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from benchmarks.speed.baseline import DenseNetwork
from sharp_engine import LearnerConfig
from sharp_engine.network.architecture import resolve_architecture


class PlainNetwork:
    """A dense network with a linear layer of one output per class, trained with cross-entropy."""

    def __init__(self, config: LearnerConfig, input_shape: tuple[int, ...], classes: int, seed: int = 0) -> None:
        self._training = config.training
        self._random = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body = DenseNetwork(resolve_architecture(config.architecture, input_shape))
            self._network = nn.Sequential(body, nn.Linear(body.outputs, classes))
        self._seen = torch.zeros(classes, dtype=torch.bool)

    def learn(self, x: NDArray[Any], labels: Sequence[int]) -> Iterator[float]:
        """Fine-tune on one episode; yields the share that is done, after each step."""
        training = self._training
        examples, y = torch.as_tensor(x), torch.tensor(labels)
        self._seen[y] = True
        steps = -(-len(y) // training.batch_size)
        epochs = max(training.epochs, -(-training.min_steps // steps))
        done, total = 0, training.phases * epochs * steps
        for _ in range(training.phases):
            optimiser = torch.optim.Adadelta(self._network.parameters(), lr=training.learning_rate)
            for _ in range(epochs):
                for index in torch.randperm(len(y), generator=self._random).split(training.batch_size):
                    optimiser.zero_grad()
                    F.cross_entropy(self._network(examples[index]), y[index]).backward()
                    optimiser.step()
                    done += 1
                    yield done / total

    @torch.inference_mode()
    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The best of the classes seen so far."""
        logits = self._network(torch.as_tensor(x)).masked_fill(~self._seen, -torch.inf)  # (n, classes)
        answers: NDArray[np.int64] = logits.argmax(1).numpy()
        return answers
