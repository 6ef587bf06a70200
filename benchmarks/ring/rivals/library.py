"""Avalanche's strategies that go on training a network, as contestants: SGD, Joint, ER, DER, A-GEM, GDumb.

Each is the library's own class with the paper's settings; this module only hands episodes over and asks for answers.
iCaRL, which needs more, has a module of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
from avalanche.benchmarks.utils.classification_dataset import _make_taskaware_tensor_classification_dataset
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import LRSchedulerPlugin
from avalanche.training.supervised import AGEM, DER, GDumb, Naive, Replay
from torch import Tensor, nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup
from benchmarks.ring.rivals.networks import Network, Scale, answers, build, weights
from benchmarks.ring.rivals.settings import ALPHA, MOMENTUM, Training, training

EVAL_BATCH = 512


class Reporter(SupervisedPlugin):  # type: ignore[misc] # the library has no types here
    """Says after each epoch which share of the episode is learned."""

    def __init__(self, setup: Setup, epochs: int) -> None:
        super().__init__()
        self.setup, self.epochs, self.done = setup, epochs, 0

    def before_training_exp(self, strategy: Any, **_: Any) -> None:
        """An episode begins."""
        self.done = 0

    def after_training_epoch(self, strategy: Any, **_: Any) -> None:
        """Another epoch is done."""
        self.done += 1
        self.setup.report(self.done / self.epochs)


class Strategy:
    """A contestant that is one of Avalanche's strategies."""

    method = ""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.scale = Scale(setup.dataset)
        self.network = build(setup)
        self.trained = self.training()
        self.optimizer = torch.optim.SGD(self.network.parameters(), self.trained.rate, momentum=MOMENTUM)
        self.strategy = self.make()

    def training(self) -> Training:
        """Rate, batch and epochs."""
        return training(self.method, self.setup.dataset, self.setup.shape)

    def common(self) -> dict[str, Any]:
        """What all strategies take."""
        return {
            "model": self.network,
            "optimizer": self.optimizer,
            "train_mb_size": self.trained.batch,
            "train_epochs": self.trained.epochs,
            "eval_mb_size": EVAL_BATCH,
            "evaluator": None,
            "plugins": [Reporter(self.setup, self.trained.epochs)],
        }

    def make(self) -> Any:
        """The library's strategy."""
        raise NotImplementedError

    def learn(self, x: Inputs, y: Ints) -> None:
        """One experience."""
        self.strategy.train(self.experience(x, y), num_workers=0)

    def experience(self, x: Inputs, y: Ints) -> Any:
        """An episode as Avalanche has it."""
        dataset = _make_taskaware_tensor_classification_dataset(
            self.tensor(x), torch.from_numpy(y.copy()), task_labels=0
        )
        return benchmark_from_datasets(train=[dataset]).train_stream[0]

    def tensor(self, x: Inputs) -> Tensor:
        """Examples as the strategy gets them."""
        return self.scale(x)

    def predict(self, x: Inputs) -> Ints:
        """By the strategy's model."""
        return answers(self.strategy.model, self.tensor(x), EVAL_BATCH)

    def kept(self) -> Kept:
        """Weights and examples."""
        examples = [row.numpy() for row in self.memory()]
        per_value = 4 if self.setup.vectors else 1
        raw = sum(example.size for example in examples) * per_value
        return Kept([*weights(self.strategy.model), *examples, *(row.numpy() for row in self.beside())], raw)

    def memory(self) -> list[Tensor]:
        """Examples that it keeps."""
        return []

    def beside(self) -> list[Tensor]:
        """What it keeps with its examples."""
        return []

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "Avalanche", **self.trained.to_dict()}


def _of_buffer(buffer: Any) -> list[Tensor]:
    return [buffer[i][0] for i in range(len(buffer))]


class FineTuning(Strategy):
    """Naive fine-tuning, the lower bound."""

    method = "sgd"

    def make(self) -> Any:
        """Of the library."""
        return Naive(criterion=nn.CrossEntropyLoss(), **self.common())


class Joint(FineTuning):
    """The same network with all examples at once, the upper bound; its process hands it one episode of everything."""

    method = "joint"


class ExperienceReplay(Strategy):
    """ER."""

    method = "er"

    def make(self) -> Any:
        """Of the library."""
        return Replay(criterion=nn.CrossEntropyLoss(), mem_size=self.setup.memory, **self.common())

    def memory(self) -> list[Tensor]:
        """The replay buffer."""
        (plugin,) = (p for p in self.strategy.plugins if hasattr(p, "storage_policy"))
        return _of_buffer(plugin.storage_policy.buffer)


class DarkExperience(Strategy):
    """DER, not DER++. The replay batch cannot be larger than the memory: the library then replays nothing."""

    method = "der"

    def make(self) -> Any:
        """Of the library."""
        batch = min(self.trained.batch, self.setup.memory)
        return DER(mem_size=self.setup.memory, batch_size_mem=batch, alpha=ALPHA, beta=0.0, **self.common())

    def memory(self) -> list[Tensor]:
        """The replay buffer."""
        return _of_buffer(self.strategy.storage_policy.buffer)

    def beside(self) -> list[Tensor]:
        """The logits that it replays with them."""
        buffer = self.strategy.storage_policy.buffer
        return [buffer[i][-1] for i in range(len(buffer))]

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {**super().settings(), "alpha": ALPHA, "beta": 0.0}


class AveragedGem(Strategy):
    """A-GEM; its memory is divided among episodes, whose number it must know."""

    method = "agem"

    def make(self) -> Any:
        """Of the library."""
        per_episode = max(1, self.setup.memory // len(self.setup.sequence))
        sample = max(self.trained.batch, len(self.setup.sequence))
        return AGEM(criterion=nn.CrossEntropyLoss(), patterns_per_exp=per_episode, sample_size=sample, **self.common())

    def memory(self) -> list[Tensor]:
        """Of all episodes."""
        (plugin,) = (p for p in self.strategy.plugins if hasattr(p, "buffers"))
        return [row for buffer in plugin.buffers for row in _of_buffer(buffer)]


class Clip(SupervisedPlugin):  # type: ignore[misc] # the library has no types here
    """Bounds the length of each step's gradient."""

    most = 10.0

    def before_update(self, strategy: Any, **_: Any) -> None:
        """Just before the step."""
        nn.utils.clip_grad_norm_(strategy.model.parameters(), self.most)


class Gdumb(Strategy):
    """GDumb, trained as its authors' code does: 256 epochs in batches of 16, rates 0.05 to 0.0005, gradients cut."""

    method = "gdumb"

    def training(self) -> Training:
        """Of its paper."""
        return Training(0.05, 16, 256)

    def make(self) -> Any:
        """Of the library."""
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.trained.epochs, eta_min=0.0005)
        common = self.common()
        common["plugins"] += [LRSchedulerPlugin(cosine, reset_scheduler=True, reset_lr=True), Clip()]
        return GDumb(criterion=nn.CrossEntropyLoss(), mem_size=self.setup.memory, **common)

    def memory(self) -> list[Tensor]:
        """The balanced buffer."""
        (plugin,) = (p for p in self.strategy.plugins if hasattr(p, "storage_policy"))
        return _of_buffer(plugin.storage_policy.buffer)


class Embedding(nn.Module):
    """A network without its head."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """What its head would see."""
        return self.network.embed(x)
