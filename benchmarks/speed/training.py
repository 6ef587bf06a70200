"""Processor time of learning against the plain dense network: same shape, loss, batches, optimiser, epochs and steps.

The two take turns epoch by epoch: whenever the engine has finished an epoch, the dense network does one. Our time is
that of the whole `learn_episode` (rewiring, choice of memories, everything), the dense network's of its epochs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.datasets import Examples
from benchmarks.speed.baseline import DenseNetwork, DenseTrainer, random_replay
from benchmarks.speed.timing import Comparison, Spent, now
from sharp_engine import Learner, LearnerConfig, Progress

MNIST_TARGET, VGG_TARGET = 0.5, 0.7


@dataclass
class _Turns:
    """The engine's observer: lets the dense network do an epoch after each of the engine's, and keeps both times."""

    dense: DenseTrainer
    ours: Spent = Spent()
    """In epochs."""
    theirs: Spent = Spent()
    away: Spent = Spent()
    """In this observer: not the engine's time."""
    epochs: int = 0

    def __post_init__(self) -> None:
        self._mark = now()

    def __call__(self, progress: Progress) -> None:
        came = now()
        if progress.event == "phase-started":
            self.dense.begin_phase()
        elif progress.event == "epoch-ended":
            self.ours += came - self._mark
            self.epochs += 1
            before = now()
            self.dense.epoch()
            self.theirs += now() - before
        left = now()
        self.away += left - came
        # A step's report lies within an epoch: the epoch goes on, less what was spent here.
        self._mark = self._mark + (left - came) if progress.event == "step" else left


@dataclass(frozen=True)
class EpisodeTimes:
    """What one episode took."""

    epochs: int
    ours: Spent
    """The whole of `learn_episode`."""
    ours_in_epochs: Spent
    theirs: Spent
    """All of the dense network's epochs."""


def learn_in_turns(config: LearnerConfig, episodes: Sequence[Examples]) -> tuple[Learner, list[EpisodeTimes]]:
    """Learn a sequence with the engine and with the dense network, epoch by epoch in turns."""
    config = config.with_options({"memory.holdout": 0.0, "architecture.input_shape": list(episodes[0].x.shape[1:])})
    learner = Learner(config)
    assert learner.architecture is not None
    dense_network = DenseNetwork(learner.architecture).to(learner.device)
    training = config.training
    dense = DenseTrainer(dense_network, training.batch_size, training.temperature, training.learning_rate)
    times = []
    before: Examples | None = None
    for episode in episodes:
        replay = None
        if before is not None and config.memory.replayed_episodes > 0:
            replay = random_replay(dense_network, config.memory.stm_capacity, before.y)
        dense.begin_episode(torch.from_numpy(episode.x).float() / 255.0, torch.from_numpy(episode.y), replay)
        turns = _Turns(dense)
        start = now()
        learner.learn_episode(episode.x, episode.y, observer=turns)
        whole = now() - start
        times.append(EpisodeTimes(turns.epochs, whole - turns.away, turns.ours, turns.theirs))
        before = episode
    return learner, times


def compare(
    name: str, episodes: Sequence[EpisodeTimes], target: float | None, *, epoch_target: float | None = None
) -> list[Comparison]:
    """An epoch with replay (of the second episode), and the whole sequence."""
    second = episodes[1]
    one = 1.0 / second.epochs
    return [
        Comparison(
            f"{name}, an epoch with replay",
            "epoch",
            second.ours_in_epochs.times(one),
            second.theirs.times(one),
            epoch_target,
        ),
        Comparison(
            f"{name}, all {len(episodes)} episodes",
            "sequence",
            sum((e.ours for e in episodes), Spent()),
            sum((e.theirs for e in episodes), Spent()),
            target,
        ),
    ]


def details(episodes: Sequence[EpisodeTimes]) -> list[dict[str, Any]]:
    """Episode by episode, as plain JSON values."""
    return [
        {
            "epochs": e.epochs,
            "cpu_seconds": e.ours.cpu,
            "cpu_seconds_in_epochs": e.ours_in_epochs.cpu,
            "baseline_cpu_seconds": e.theirs.cpu,
        }
        for e in episodes
    ]
