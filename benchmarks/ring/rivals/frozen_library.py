"""Avalanche's Deep SLDA and FeCAM: statistics over the features of a network that no longer changes.

Where the ring has no pretrained network, it is trained on the first episode and then frozen, as FeCAM's paper does; of
vectors the features are the vectors themselves.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from avalanche.models import FeCAMClassifier, TrainEvalModel
from avalanche.training.plugins.update_fecam import CurrentDataFeCAMUpdate
from avalanche.training.supervised import Naive, StreamingLDA
from torch import nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup, in_chunks
from benchmarks.ring.rivals.library import EVAL_BATCH, Embedding, Strategy
from benchmarks.ring.rivals.networks import load_pretrained, weights


class Frozen(Strategy):
    """A network that is pretrained or learns from the first episode only, none for vectors; then only statistics."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.begun = bool(setup.pretrained)
        if setup.pretrained:
            load_pretrained(self.network, setup.pretrained, "hidden")
            self.network.eval()
        self.embedding: nn.Module = nn.Identity() if setup.vectors else Embedding(self.network)
        self.size = setup.shape[0] if setup.vectors else self.network.features
        self.statistics = self.collect()

    def make(self) -> Any:
        """Fine-tuning, for the first episode."""
        return Naive(criterion=nn.CrossEntropyLoss(), **self.common())

    def collect(self) -> Any:
        """The library's strategy that follows."""
        raise NotImplementedError

    def learn(self, x: Inputs, y: Ints) -> None:
        """Train first, then only collect."""
        experience = self.experience(x, y)
        if not self.begun and not self.setup.vectors:
            self.strategy.train(experience, num_workers=0)
            self.network.eval().requires_grad_(False)
        self.begun = True
        self.update(experience)

    def settings(self) -> dict[str, Any]:
        """For the reader: a pretrained network is not trained here."""
        return {"code": "Avalanche"} if self.setup.pretrained else super().settings()

    def update(self, experience: Any) -> None:
        """Take an episode's statistics in."""
        self.statistics.train(experience, num_workers=0)


class DeepSlda(Frozen):
    """Deep streaming LDA."""

    method = "slda"

    def collect(self) -> Any:
        """Of the library, in large batches: it inverts its covariance at each."""
        return StreamingLDA(
            slda_model=self.embedding,
            criterion=nn.CrossEntropyLoss(),
            input_size=self.size,
            num_classes=self.setup.classes,
            train_mb_size=2048,
            eval_mb_size=EVAL_BATCH,
            evaluator=None,
        )

    @torch.no_grad()
    def predict(self, x: Inputs) -> Ints:
        """Among the classes that were seen."""
        seen = torch.nonzero(self.statistics.cK > 0).flatten()
        self.embedding.eval()
        parts = [self.statistics.predict(self.embedding(part)) for part in self.tensor(x).split(EVAL_BATCH)]
        labels: Ints = seen[torch.cat(parts)[:, seen].argmax(1)].numpy()
        return labels

    def kept(self) -> Kept:
        """Means, counts and one covariance beside the network."""
        found = [tensor.numpy() for tensor in (self.statistics.muK, self.statistics.cK, self.statistics.Sigma)]
        return Kept([*weights(self.embedding), *found])


class FeCam(Frozen):
    """FeCAM: a covariance per class. Tukey's square root needs features that are not negative: not on vectors."""

    method = "fecam"

    def collect(self) -> Any:
        """The library's classifier and the plugin that fills it."""
        self.classifier = FeCAMClassifier(tukey=not self.setup.vectors)
        model = TrainEvalModel(self.embedding, nn.Identity(), self.classifier)
        return SimpleNamespace(model=model, train_mb_size=EVAL_BATCH, device="cpu", plugin=CurrentDataFeCAMUpdate())

    def update(self, experience: Any) -> None:
        """By the library's plugin, as after a training that changes nothing."""
        self.statistics.model.eval()
        self.statistics.experience = experience
        self.statistics.plugin.after_training_exp(self.statistics)
        self.statistics.experience = None

    @torch.no_grad()
    def predict(self, x: Inputs) -> Ints:
        """In large chunks: the library inverts every covariance for each."""
        self.statistics.model.eval()

        def chunk(part: Inputs) -> Ints:
            features = torch.cat([self.embedding(some) for some in self.tensor(part).split(EVAL_BATCH)])
            labels: Ints = self.classifier(features).argmax(1).numpy()
            return labels

        return in_chunks(chunk, x, 2500)

    def kept(self) -> Kept:
        """A mean and a covariance per class beside the network."""
        found = [*self.classifier.class_means_dict.values(), *self.classifier.class_cov_dict.values()]
        return Kept([*weights(self.embedding), *(tensor.numpy() for tensor in found)])
