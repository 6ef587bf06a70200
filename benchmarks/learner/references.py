"""What stands beside the learner: a plain linear discriminant and 5 nearest neighbours that keep every example.

Both see the same examples as the learner, all at once, and the same features where the learner has any (`features_of`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from benchmarks.learner.metrics import Floats, Ints

NEIGHBOURS = 5
_CHUNK = 1000
"""Queries at a time: distances to every example kept are (queries, examples)."""

Rows = NDArray[Any]
"""(n, values)"""


def discriminant(x: Rows, y: Ints, queries: Rows) -> Ints:
    """Answers of the shrunk linear discriminant, with all classes equally likely beforehand, as the learner takes them.

    Three classes or more.
    """
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class of one example has no covariance of its own to estimate
        model.fit(x, y)
    scores = model.decision_function(queries) - np.log(model.priors_)  # (n, classes)
    return np.asarray(model.classes_[scores.argmax(1)], dtype=np.int64)


def nearest_neighbours(x: Rows, y: Ints, queries: Rows) -> Ints:
    """Answers by a vote of the nearest examples of all that were ever seen."""
    model = KNeighborsClassifier(min(NEIGHBOURS, len(x)), algorithm="brute").fit(x, y)
    parts = [model.predict(queries[at : at + _CHUNK]) for at in range(0, len(queries), _CHUNK)]
    return np.concatenate(parts).astype(np.int64)


def neighbour_distance(x: Rows, queries: Rows) -> Floats:
    """Mean distance to the nearest examples of all that were ever seen: (n,)."""
    model = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(x)), algorithm="brute").fit(x)
    parts = [model.kneighbors(queries[at : at + _CHUNK])[0] for at in range(0, len(queries), _CHUNK)]
    distances: Floats = np.concatenate(parts).mean(1)
    return distances
