"""Random projections with ridge regression (McDonnell and others, RanPAC, 2023), of inputs or of pretrained features.

φ(x) = ReLU(xW), W random and fixed; x is what a pretrained network gives before its output layer, where there is one.
Kept are the sums Σφφᵀ and Σφ·onehot(y); weights are the ridge solution. After each episode the ridge is chosen among
seventeen powers of ten by a fifth of the episode, as its authors' code does, but with the sums of earlier episodes
beside the other four fifths. 5,000 projections: its paper's 10,000 keep four times as many bytes, 400 MB, and take
eight times as long to solve.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup, in_chunks
from benchmarks.ring.rivals.networks import Network, Scale, build, load_pretrained, weights

PROJECTIONS = 5000
RIDGES = tuple(10.0**power for power in range(-8, 9))
HELD_OUT = 0.2

Floats = NDArray[np.float32]


class ProjectedRidge:
    """The contestant."""

    def __init__(self, setup: Setup, projections: int = PROJECTIONS) -> None:
        self.setup = setup
        self.scale = Scale(setup.dataset)
        self.random = np.random.default_rng((setup.seed, 12))
        self.network: Network | None = None
        size = int(np.prod(setup.shape))
        if setup.pretrained:
            self.network = build(setup)
            load_pretrained(self.network, setup.pretrained, "hidden")
            size = self.network.features
        self.matrix = self.random.standard_normal((size, projections)).astype(np.float32)
        self.gram = np.zeros((projections, projections), dtype=np.float32)
        self.sums = np.zeros((projections, 0), dtype=np.float32)
        self.classes: list[int] = []
        self.weights = self.sums
        self.ridge = 1.0

    def learn(self, x: Inputs, y: Ints) -> None:
        """Choose the ridge by a part of the episode, then take all of it in."""
        for class_id in sorted(set(y.tolist()) - set(self.classes)):
            self.classes.append(class_id)
            self.sums = np.concatenate([self.sums, np.zeros((len(self.sums), 1), dtype=np.float32)], axis=1)
        order = self.random.permutation(len(y))
        held = order[: round(HELD_OUT * len(y))]
        rest = order[len(held) :]
        self._take(x[rest], y[rest])
        self.ridge = self._best_ridge(x[held], y[held])
        self._take(x[held], y[held])
        self.weights = solve(self.gram, self.sums, self.ridge)

    def predict(self, x: Inputs) -> Ints:
        """By the largest output."""
        order = np.asarray(self.classes)
        return in_chunks(lambda part: order[(self._features(part) @ self.weights).argmax(1)], x, 2000)

    def kept(self) -> Kept:
        """Sums and weights; the projections follow from the seed."""
        before = [] if self.network is None else weights(self.network.front, self.network.back)
        return Kept([self.gram, self.sums, self.weights, *before])

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "written from its paper", "projections": self.gram.shape[0], "ridge in the end": self.ridge}

    def _features(self, x: Inputs) -> Floats:
        inputs = self.scale(x)
        if self.network is not None:
            with torch.no_grad():
                inputs = torch.cat([self.network.embed(part) for part in inputs.split(512)])
        values = inputs.flatten(1).numpy() @ self.matrix
        return np.maximum(values, 0.0, out=values)

    def _take(self, x: Inputs, y: Ints) -> None:
        places = np.searchsorted(np.sort(self.classes), y)
        columns = np.argsort(self.classes)[places]
        for at in range(0, len(y), 4000):
            features = torch.from_numpy(self._features(x[at : at + 4000]))
            torch.from_numpy(self.gram).addmm_(features.T, features)
            targets = np.zeros((len(features), len(self.classes)), dtype=np.float32)
            targets[np.arange(len(targets)), columns[at : at + 4000]] = 1.0
            self.sums += features.numpy().T @ targets

    def _best_ridge(self, x: Inputs, y: Ints) -> float:
        """The one whose outputs for held-out examples have the least squared error."""
        if not len(y):
            return self.ridge
        features = self._features(x)
        targets = (y[:, None] == np.asarray(self.classes)).astype(np.float32)
        errors = []
        for done, ridge in enumerate(RIDGES):
            try:
                errors.append(float(np.square(features @ solve(self.gram, self.sums, ridge) - targets).mean()))
            except np.linalg.LinAlgError:  # too small a ridge for single precision
                errors.append(np.inf)
            self.setup.report(done / len(RIDGES))
        return RIDGES[int(np.argmin(errors))]


def solve(gram: Floats, sums: Floats, ridge: float) -> Floats:
    """(Gram + ridge·I)⁻¹ sums, or LinAlgError where rounding leaves no positive matrix."""
    matrix = gram.copy()
    matrix[np.diag_indices_from(matrix)] += np.float32(ridge)
    factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    found: Floats = scipy.linalg.cho_solve(factor, sums, check_finite=False)
    return found
