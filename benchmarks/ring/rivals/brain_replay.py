"""Brain-inspired replay (van de Ven, Siegelmann and Tolias, 2020): a network that generates what it replays.

An autoencoder and a classifier share their encoder. Each class has its own Gaussian in the latent space (conditional
replay), each class silences its own random part of the decoder (gating by context), and replay begins behind layers
that are frozen (internal replay). While an episode is learned, the model of before generates examples of the classes
seen and says with which shares it would name them (distillation, temperature 2).

With its paper's settings: for grey images those of split MNIST, where all layers learn and pixels are generated; for
colour those of CIFAR100, with the convolutions, trained on the first episode here, frozen behind. Vectors are taken
like split MNIST's pixels, with a squared error. Where there are pretrained layers, all convolutions are, and rates,
batches and updates are those of the paper's own comparison; it names no widths, so these stay.
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup
from benchmarks.ring.rivals.networks import Scale, build, load_pretrained, weights
from benchmarks.ring.rivals.settings import MOMENTUM, training

LATENT = 100
TEMPERATURE = 2.0


@dataclass(frozen=True)
class BrainSettings:
    """Of its paper."""

    units: int
    rate: float
    batch: int
    updates: int
    gated: float
    """Share of the decoder's units that a class silences."""


SPLIT_MNIST = BrainSettings(units=400, rate=0.001, batch=128, updates=2000, gated=0.8)
CIFAR100 = BrainSettings(units=2000, rate=0.0001, batch=256, updates=5000, gated=0.7)
AFTER_MNIST = BrainSettings(units=400, rate=0.0001, batch=1024, updates=250, gated=0.8)
AFTER_CIFAR10 = BrainSettings(units=2000, rate=0.0005, batch=256, updates=5000, gated=0.7)
"""The same after pretraining: the paper's rows for EMNIST and CIFAR100 (its supplement, table 4)."""


class ReplayModel(nn.Module):
    """Two hidden layers up to the classes and to the latent space, and two back."""

    def __init__(self, inputs: int, classes: int, units: int, gated: float, binary: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU())
        self.head = nn.Linear(units, classes)
        self.mean, self.log_variance = nn.Linear(units, LATENT), nn.Linear(units, LATENT)
        self.decoder = nn.ModuleList([nn.Linear(LATENT, units), nn.Linear(units, units)])
        self.output = nn.Linear(units, inputs)
        self.binary = binary
        """Whether values are shares of white, compared by cross entropy."""
        self.modes = nn.Parameter(torch.randn(classes, LATENT))
        self.mode_log_variances = nn.Parameter(torch.zeros(classes, LATENT))
        self.gates: Tensor
        self.register_buffer("gates", (torch.rand(2, classes, units) >= gated).float())

    def classify(self, x: Tensor) -> Tensor:
        """Logits: (n, classes)."""
        logits: Tensor = self.head(self.encoder(x))
        return logits

    def decode(self, z: Tensor, shares: Tensor) -> Tensor:
        """Inputs (n, inputs), as logits where they are binary; gates are mixed by the shares of classes."""
        for layer, gates in zip(self.decoder, self.gates, strict=True):
            z = F.relu(layer(z)) * (shares @ gates)
        reconstructed: Tensor = self.output(z)
        return reconstructed

    @torch.no_grad()
    def generate(self, labels: Tensor) -> Tensor:
        """One input of each class named: (n, inputs)."""
        noise = torch.randn(len(labels), LATENT)
        z = self.modes[labels] + noise * (0.5 * self.mode_log_variances[labels]).exp()
        shares = F.one_hot(labels, len(self.modes)).float()
        x = self.decode(z, shares)
        return x.sigmoid() if self.binary else x

    def generative_loss(self, x: Tensor, shares: Tensor) -> Tensor:
        """Reconstruction and latent cost, both per input value: the mean over examples. `shares`: (n, classes)."""
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        output = self.decode(z, shares)
        if self.binary:
            reconstruction = F.binary_cross_entropy_with_logits(output, x, reduction="none").mean(1)
        else:
            reconstruction = (output - x).square().mean(1)
        posterior = _log_normal(z, mean, log_variance)
        by_mode = _log_normal(z[:, None], self.modes, self.mode_log_variances)  # (n, classes)
        prior = torch.logsumexp(by_mode + shares.clamp_min(1e-12).log(), dim=1)
        return (reconstruction + (posterior - prior) / x.shape[1]).mean()


class BrainInspiredReplay:
    """The contestant."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.scale = Scale(setup.dataset)
        colour = not setup.vectors and setup.shape[0] != 1
        self.paper = CIFAR100 if colour else SPLIT_MNIST
        self.network = build(setup) if colour or setup.pretrained else None
        if self.network is not None and setup.pretrained:
            self.paper = AFTER_CIFAR10 if colour else AFTER_MNIST
            load_pretrained(self.network, setup.pretrained, "convolutions")
        with torch.no_grad():
            inputs = self._hidden(torch.zeros(1, *setup.shape)).shape[1]
        binary = not setup.vectors and self.network is None
        self.model = ReplayModel(inputs, setup.classes, self.paper.units, self.paper.gated, binary)
        self.updates = max(1, round(self.paper.updates * setup.fraction))
        self.seen: list[int] = []

    def learn(self, x: Inputs, y: Ints) -> None:
        """One episode, with what the model of before generates of earlier classes."""
        inputs, labels = self.scale(x), torch.from_numpy(y.copy())
        if self.network is not None and not self.setup.pretrained and not self.seen:
            self._train_convolutions(inputs, labels)
        hidden = torch.cat([self._hidden(part) for part in inputs.split(512)])
        before = copy.deepcopy(self.model).eval() if self.seen else None
        old = torch.tensor(self.seen, dtype=torch.int64)
        self.seen = sorted({*self.seen, *labels.tolist()})
        new_share = len(set(labels.tolist())) / len(self.seen)
        optimizer = torch.optim.Adam(self.model.parameters(), self.paper.rate, betas=(0.9, 0.999))
        self.model.train()
        for update in range(self.updates):
            index = torch.randint(len(labels), (min(self.paper.batch, len(labels)),))
            loss = self._loss_on_new(hidden[index], labels[index])
            if before is not None:
                loss = new_share * loss + (1.0 - new_share) * self._loss_on_replay(before, old)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if update % 50 == 0:
                self.setup.report(update / self.updates)

    def predict(self, x: Inputs) -> Ints:
        """Among the classes seen."""
        self.model.eval()
        seen = torch.tensor(self.seen)
        with torch.no_grad():
            parts = [self.model.classify(self._hidden(part))[:, seen] for part in self.scale(x).split(512)]
        return seen[torch.cat(parts).argmax(1)].numpy()

    def kept(self) -> Kept:
        """Weights only."""
        if self.network is None:
            return Kept(weights(self.model))
        return Kept(weights(self._convolutions() if self.setup.pretrained else self.network, self.model))

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "written from its paper", "optimizer": "Adam", **asdict(self.paper), "updates": self.updates}

    def _loss_on_new(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self.model.classify(hidden)[:, self.seen]
        place = torch.searchsorted(torch.tensor(self.seen), labels)
        shares = F.one_hot(labels, self.setup.classes).float()
        return F.cross_entropy(logits, place) + self.model.generative_loss(hidden, shares)

    def _loss_on_replay(self, before: ReplayModel, old: Tensor) -> Tensor:
        labels = old[torch.randint(len(old), (self.paper.batch,))]
        generated = before.generate(labels)
        with torch.no_grad():
            said = (before.classify(generated)[:, old] / TEMPERATURE).softmax(1)  # (n, old classes)
        shares = torch.zeros(len(labels), self.setup.classes)
        shares[:, old] = said
        logits = self.model.classify(generated)[:, self.seen] / TEMPERATURE
        distilled = -(shares[:, self.seen] * logits.log_softmax(1)).sum(1).mean() * TEMPERATURE**2
        return distilled + self.model.generative_loss(generated, shares)

    def _hidden(self, x: Tensor) -> Tensor:
        """What replay begins with: pixels, vectors, or what the frozen convolutions give; flat."""
        if self.network is None:
            return x.flatten(1)
        with torch.no_grad():
            hidden: Tensor = self._convolutions()(x).flatten(1)
        return hidden

    def _convolutions(self) -> nn.Sequential:
        assert self.network is not None
        return nn.Sequential(self.network.front, *list(self.network.back)[:-3])

    def _train_convolutions(self, inputs: Tensor, labels: Tensor) -> None:
        """On the first episode, as iCaRL's network is trained; then they are frozen."""
        assert self.network is not None
        chosen = training("icarl", self.setup.dataset, self.setup.shape)
        optimizer = torch.optim.SGD(self.network.parameters(), chosen.rate, momentum=MOMENTUM)
        for _ in range(chosen.epochs):
            for index in torch.randperm(len(labels)).split(chosen.batch):
                loss = F.cross_entropy(self.network(inputs[index]), labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self.network.eval().requires_grad_(False)


def _log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Log density of a diagonal Gaussian, summed over the last dimension."""
    squares = (z - mean).square() / log_variance.exp()
    return -0.5 * (log_variance + squares + math.log(2.0 * math.pi)).sum(-1)
