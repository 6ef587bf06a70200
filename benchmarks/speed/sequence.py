"""The default learner's whole sequence beside a dense network of conv-small's shape.

Two things stand beside it. The dense network learns the same episodes, three epochs of each, as in `training`, which
leaves it knowing little but the last; the two take turns episode by episode. And the same network with a linear
classifier on top, trained on everything at once with cross-entropy and Adam, until it is as accurate as the learner:
the quickest way to accuracy that is usual, and no stream. Judging is not counted on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.datasets import Examples
from benchmarks.learner import metrics
from benchmarks.speed.baseline import DenseNetwork, DenseTrainer, random_replay
from benchmarks.speed.metric_clock import EpisodeCost, learn_timed
from benchmarks.speed.timing import Comparison, Spent, now
from sharp_engine import Learner, LearnerConfig
from sharp_engine.config import ArchitectureConfig
from sharp_engine.network.architecture import resolve_architecture

WHOLE_TARGET, METRIC_TARGET = 1.0, 0.6
DENSE_EPOCHS = 3
_RATE = 0.001
"""Adam's usual one."""


@dataclass(frozen=True)
class AtOnce:
    """The dense classifier with everything at once."""

    spent: Spent
    epochs: int
    accuracy: float
    reached: bool
    """Whether it became as accurate as the learner."""


@dataclass
class SequenceTimes:
    """What a sequence took on each side."""

    accuracy: float
    episodes: list[EpisodeCost]
    dense: list[Spent]
    at_once: AtOnce
    comparisons: list[Comparison] = field(init=False)

    def __post_init__(self) -> None:
        whole = sum((e.whole for e in self.episodes), Spent())
        metric = sum((e.metric for e in self.episodes), Spent())
        dense = sum(self.dense, Spent())
        name = f"MNIST, {len(self.episodes)} episodes"
        three = f"a dense network, {DENSE_EPOCHS} epochs of each"
        once = f"a dense classifier, all at once, {self.at_once.epochs} epochs"
        once += " until it is as accurate" if self.at_once.reached else ", and not as accurate yet"
        self.comparisons = [
            Comparison(f"{name}, network included", "sequence", whole, dense, WHOLE_TARGET, three),
            Comparison(f"{name}, until the metric answers", "sequence", metric, dense, METRIC_TARGET, three),
            Comparison(f"{name}, network included", "sequence", whole, self.at_once.spent, None, once),
            Comparison(f"{name}, until the metric answers", "sequence", metric, self.at_once.spent, None, once),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "accuracy": self.accuracy,
            "accuracy_at_once": self.at_once.accuracy,
            "epochs_at_once": self.at_once.epochs,
            "reached_at_once": self.at_once.reached,
            "comparisons": [c.to_dict() for c in self.comparisons],
            "cpu_seconds_per_episode": [e.whole.cpu for e in self.episodes],
            "metric_cpu_seconds_per_episode": [e.metric.cpu for e in self.episodes],
        }


def measure(config: LearnerConfig, episodes: Sequence[Examples], judge: Examples, *, most_epochs: int) -> SequenceTimes:
    """Learn a sequence in turns, then everything at once until as accurate, or for so many epochs at most."""
    learner = Learner(config)
    architecture = resolve_architecture(ArchitectureConfig(kind="conv-small"), episodes[0].x.shape[1:])
    network, training = DenseNetwork(architecture).to(learner.device), config.training
    trainer = DenseTrainer(network, training.batch_size, training.temperature, training.learning_rate)
    ours, theirs = [], []
    before: Examples | None = None
    for episode in episodes:
        ours.append(learn_timed(learner, episode))
        replay = None if before is None else random_replay(network, config.memory.stm_capacity, before.y)
        trainer.begin_episode(_floats(episode), torch.from_numpy(episode.y), replay)
        start = now()
        for _ in range(DENSE_EPOCHS):
            trainer.begin_phase()
            trainer.epoch()
        theirs.append(now() - start)
        before = episode
    accuracy = metrics.accuracy(judge.y, np.asarray(learner.predict(judge.x, novelty=False).labels))
    fresh = DenseNetwork(architecture).to(learner.device)
    at_once = learn_at_once(fresh, episodes, judge, accuracy, batch=training.batch_size, most_epochs=most_epochs)
    return SequenceTimes(accuracy, ours, theirs, at_once)


def learn_at_once(
    network: DenseNetwork, episodes: Sequence[Examples], judge: Examples, wanted: float, *, batch: int, most_epochs: int
) -> AtOnce:
    """Train the dense network with a classifier on all episodes' images together; time is that of its epochs alone."""
    device = next(network.parameters()).device
    x = torch.cat([_floats(episode) for episode in episodes]).to(device)
    y = torch.cat([torch.from_numpy(episode.y) for episode in episodes]).to(device)
    model = nn.Sequential(network, nn.Linear(network.outputs, int(y.max()) + 1).to(device))
    optimiser = torch.optim.Adam(model.parameters(), lr=_RATE)
    spent, accuracy, epochs = Spent(), 0.0, 0
    while epochs < most_epochs and accuracy < wanted:
        start = now()
        for index in torch.randperm(len(y), device=device).split(batch):
            loss = F.cross_entropy(model(x[index]), y[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        spent += now() - start
        epochs += 1
        with torch.inference_mode():
            answers = torch.cat([model(part.to(device)).argmax(1) for part in _floats(judge).split(1000)])
        accuracy = metrics.accuracy(judge.y, answers.cpu().numpy())
    return AtOnce(spent, epochs, accuracy, accuracy >= wanted)


def _floats(examples: Examples) -> Tensor:
    return torch.from_numpy(examples.x).float() / 255.0
