"""What a user of scikit-learn would pick: a mean per class, neighbours among everything kept, a linear model in parts.

They see pixels in [0, 1] or vectors as they came.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup, in_chunks

NEIGHBOURS = 5
BATCH = 100


def rows(x: Inputs) -> NDArray[np.float32]:
    """(n, values): pixels as shares of white."""
    flat = x.reshape(len(x), -1).astype(np.float32)
    return flat / 255.0 if x.dtype == np.uint8 else flat


class ClassMeans:
    """The class whose mean has the largest cosine. scikit-learn's NearestCentroid cannot learn in parts."""

    def __init__(self, setup: Setup) -> None:
        self.sums: dict[int, NDArray[np.float64]] = {}
        """Of examples of length one; a mean's length does not matter to a cosine."""

    def learn(self, x: Inputs, y: Ints) -> None:
        """Add up."""
        examples = _unit(rows(x))
        for class_id in np.unique(y).tolist():
            total = examples[y == class_id].sum(0, dtype=np.float64)
            self.sums[class_id] = self.sums.get(class_id, 0.0) + total

    def predict(self, x: Inputs) -> Ints:
        """The nearest."""
        classes = np.asarray(sorted(self.sums))
        means = _unit(np.stack([self.sums[c] for c in classes.tolist()]))
        found: Ints = classes[(rows(x) @ means.T).argmax(1)]
        return found

    def kept(self) -> Kept:
        """A vector per class."""
        return Kept([self.sums[c] for c in sorted(self.sums)])

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "numpy", "distance": "cosine"}


class Neighbours:
    """k-NN among all examples ever seen."""

    def __init__(self, setup: Setup) -> None:
        self.x: list[Inputs] = []
        self.y: list[Ints] = []
        self.model: KNeighborsClassifier | None = None

    def learn(self, x: Inputs, y: Ints) -> None:
        """Keep everything."""
        self.x.append(x.copy())
        self.y.append(y.copy())
        model = KNeighborsClassifier(NEIGHBOURS, algorithm="brute")
        self.model = model.fit(rows(np.concatenate(self.x)), np.concatenate(self.y))

    def predict(self, x: Inputs) -> Ints:
        """By a vote of the nearest."""
        assert self.model is not None
        return in_chunks(self.model.predict, rows(x), 1000)

    def kept(self) -> Kept:
        """All examples."""
        return Kept([*self.x, *self.y], sum(part.nbytes for part in self.x))

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "scikit-learn", "neighbours": NEIGHBOURS}


class LinearInParts:
    """SGDClassifier with its own defaults, by partial_fit, one pass in batches."""

    def __init__(self, setup: Setup) -> None:
        self.classes = np.arange(setup.classes)
        self.model = SGDClassifier(random_state=setup.seed)

    def learn(self, x: Inputs, y: Ints) -> None:
        """One pass."""
        examples = rows(x)
        for at in range(0, len(y), BATCH):
            self.model.partial_fit(examples[at : at + BATCH], y[at : at + BATCH], classes=self.classes)

    def predict(self, x: Inputs) -> Ints:
        """By the largest margin."""
        found: Ints = self.model.predict(rows(x)).astype(np.int64)
        return found

    def kept(self) -> Kept:
        """Weights."""
        return Kept([self.model.coef_, self.model.intercept_])

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "scikit-learn", "loss": "hinge", "alpha": 0.0001, "batch": BATCH, "passes": 1}


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))
