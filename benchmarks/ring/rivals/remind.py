"""REMIND (Hayes and others, 2020) in batches, as the paper adapts it: replay of product-quantised activations.

G is pretrained, or learns from the first episode as in the base initialisation of its paper, and is frozen; F goes on.
What is kept are codes: the channels at each position of G's output are cut into pieces, and each piece is the number of
the nearest of 256 code words, found by k-means on the first episode. With every batch as many codes are replayed,
uniformly over the classes seen. A full memory drops a random example of the class that has most. No mixup and no
augmentation, as in the paper's comparison. Vectors have no G: their codes stand for the vectors themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor, nn

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup
from benchmarks.ring.rivals.networks import Scale, build, load_pretrained, weights
from benchmarks.ring.rivals.settings import LEAST_STEPS, MOMENTUM, training

WORDS = 256
"""Code words of each piece: a byte."""
PIECE = 4
"""Values per piece. The paper tried several sizes and names none; 4 gives a quarter of the activations' bytes."""
MOST_POSITIONS = 50_000
"""Positions that code words are found on."""


@dataclass(frozen=True)
class Quantizer:
    """Product quantisation of vectors of one length."""

    words: NDArray[np.float32]
    """(pieces, 256, values per piece)"""

    @classmethod
    def fit(cls, vectors: NDArray[np.float32], piece: int, seed: int) -> Quantizer:
        """From examples (n, length)."""
        chosen = np.random.default_rng(seed).permutation(len(vectors))[:MOST_POSITIONS]
        parts = vectors[chosen].reshape(len(chosen), -1, piece)
        words = []
        for i in range(parts.shape[1]):
            count = min(WORDS, len(np.unique(parts[:, i], axis=0)))
            means = KMeans(count, n_init=1, max_iter=20, random_state=seed)
            found = means.fit(parts[:, i]).cluster_centers_.astype(np.float32)
            words.append(np.concatenate([found, np.repeat(found[:1], WORDS - count, axis=0)]))
        return cls(np.stack(words))

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The nearest word of each piece: (n, pieces)."""
        pieces, _, length = self.words.shape
        parts = vectors.reshape(len(vectors), pieces, length)
        codes = np.empty((len(vectors), pieces), dtype=np.uint8)
        for i in range(pieces):
            distances = np.square(self.words[i]).sum(1) - 2.0 * parts[:, i] @ self.words[i].T  # (n, 256)
            codes[:, i] = distances.argmin(1)
        return codes

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """What the codes stand for: (n, length)."""
        parts = [self.words[i][codes[:, i]] for i in range(len(self.words))]
        return np.concatenate(parts, axis=1)


class Remind:
    """The contestant."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.scale = Scale(setup.dataset)
        self.network = build(setup)
        if setup.pretrained:
            load_pretrained(self.network, setup.pretrained, "front")
        self.trained = training("remind", setup.dataset, setup.shape)
        self.frozen: nn.Module = nn.Identity() if setup.vectors else self.network.front
        behind = [self.network.front] if setup.vectors else []
        self.plastic = nn.Sequential(*behind, self.network.back, self.network.head)
        self.random = np.random.default_rng((setup.seed, 11))
        self.quantizer: Quantizer | None = None
        self.held: tuple[int, ...] = ()
        """Shape of what is kept of one example, before it is coded."""
        self.codes: NDArray[np.uint8] = np.empty((0, 0), dtype=np.uint8)
        self.labels: Ints = np.empty(0, dtype=np.int64)

    def learn(self, x: Inputs, y: Ints) -> None:
        """The first episode trains everything that is not pretrained; later ones train F, with replay."""
        inputs, labels = self.scale(x), torch.from_numpy(y.copy())
        if self.quantizer is None:
            self._initialise(inputs, labels)
        optimizer = self._optimizer(self.plastic)
        old = len(self.codes)
        epochs = self._epochs(len(labels))
        for epoch in range(epochs):
            for index in torch.randperm(len(labels)).split(self.trained.batch):
                activations, truth = self._frozen(inputs[index]), labels[index]
                if old:
                    replayed, replayed_truth = self._replay(len(index), old)
                    activations, truth = torch.cat([activations, replayed]), torch.cat([truth, replayed_truth])
                _step(self.plastic, optimizer, activations, truth)
            self.setup.report((epoch + 1) / epochs)
        self._store(inputs, y)

    def predict(self, x: Inputs) -> Ints:
        """By the largest output."""
        self.network.eval()
        with torch.no_grad():
            parts = [self.plastic(self._frozen(part)).argmax(1) for part in self.scale(x).split(512)]
        return torch.cat(parts).numpy()

    def kept(self) -> Kept:
        """Weights, code words and codes; of vectors the codes are the examples, compressed."""
        words = [] if self.quantizer is None else [self.quantizer.words]
        raw = self.codes.nbytes if self.setup.vectors else 0
        return Kept([*weights(self.network), *words, self.codes, self.labels], raw)

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        least = LEAST_STEPS.get(self.setup.dataset) if self.setup.pretrained else None
        steps = {} if least is None else {"steps per episode": f"at least {least}"}
        return {"code": "written from its paper", **self.trained.to_dict(), **steps, "values per code": PIECE}

    @property
    def capacity(self) -> int:
        """Examples that the budget has room for: as many bytes as raw examples would take."""
        per_raw = int(np.prod(self.setup.shape)) * (4 if self.setup.vectors else 1)
        return max(1, self.setup.memory * per_raw // max(1, int(np.prod(self.held)) // PIECE))

    def _initialise(self, inputs: Tensor, labels: Tensor) -> None:
        """Train the network on the first episode unless G is pretrained, freeze G, find code words for its answers."""
        if not self.setup.vectors and not self.setup.pretrained:
            optimizer = self._optimizer(self.network)
            base = training("icarl", self.setup.dataset, self.setup.shape)
            for _ in range(base.epochs):
                for index in torch.randperm(len(labels)).split(base.batch):
                    _step(self.network, optimizer, inputs[index], labels[index])
            self.frozen.requires_grad_(False)
        activations = self._frozen(inputs[torch.randperm(len(inputs))[:2000]])
        self.held = tuple(activations.shape[1:])
        self.quantizer = Quantizer.fit(_rows(activations), PIECE, self.setup.seed)

    def _epochs(self, examples: int) -> int:
        least = LEAST_STEPS.get(self.setup.dataset, 0) if self.setup.pretrained else 0
        return max(self.trained.epochs, math.ceil(least / math.ceil(examples / self.trained.batch)))

    def _optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        chosen = [parameter for parameter in module.parameters() if parameter.requires_grad]
        return torch.optim.SGD(chosen, self.trained.rate, momentum=MOMENTUM)

    def _frozen(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            activations: Tensor = self.frozen(inputs)
        return activations

    def _replay(self, count: int, old: int) -> tuple[Tensor, Tensor]:
        """Activations of earlier episodes: a class at random, then one of its examples."""
        assert self.quantizer is not None
        labels = self.labels[:old]
        classes, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        shares = 1.0 / (len(classes) * sizes[inverse])
        index = self.random.choice(old, count, p=shares)
        return self._decoded(self.codes[index]), torch.from_numpy(labels[index])

    def _decoded(self, codes: NDArray[np.uint8]) -> Tensor:
        assert self.quantizer is not None
        pieces = len(self.quantizer.words)
        rows = torch.from_numpy(self.quantizer.decode(codes.reshape(-1, pieces)))
        if len(self.held) == 1:
            return rows
        channels, height, width = self.held
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2).contiguous()

    def _store(self, inputs: Tensor, y: Ints) -> None:
        """Code the episode in, then drop of the class that has most until it fits."""
        assert self.quantizer is not None
        index = self.random.permutation(len(y))[: self.capacity]
        coded = self.quantizer.encode(_rows(self._frozen(inputs[torch.from_numpy(index)]))).reshape(len(index), -1)
        codes = np.concatenate([self.codes, coded]) if len(self.codes) else coded
        labels = np.concatenate([self.labels, y[index]])
        while len(labels) > self.capacity:
            classes, sizes = np.unique(labels, return_counts=True)
            dropped = self.random.choice(np.flatnonzero(labels == classes[sizes.argmax()]))
            codes, labels = np.delete(codes, dropped, axis=0), np.delete(labels, dropped)
        self.codes, self.labels = codes, labels


def _rows(activations: Tensor) -> NDArray[np.float32]:
    """Vectors to be coded: of images, the channels at each position."""
    if activations.dim() == 4:
        activations = activations.permute(0, 2, 3, 1).flatten(0, 2)
    return activations.contiguous().numpy()


def _step(module: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    loss = F.cross_entropy(module(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
