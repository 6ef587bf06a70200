"""Whether examples of classes never learned stand out, beside the distance to the nearest of all examples kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.learner import metrics, references
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment
from benchmarks.learner.features import features_of
from benchmarks.learner.summary import Figures

GROUP = "novelty"
THRESHOLD = 0.95
"""Of the novelty score: about one in twenty known examples lies above it."""


def measure(context: Context, seed: int, dataset: str, left_out: int, per_episode: int) -> Figures:
    """Leave out classes that the seed draws, learn the others, and score everything."""
    split = context.split(dataset, seed)
    order = np.random.default_rng((seed, 9)).permutation(len(split.classes)).tolist()
    unknown, known = sorted(order[:left_out]), order[left_out:]
    sequence = tuple(tuple(known[at : at + per_episode]) for at in range(0, len(known), per_episode))
    learner = context.learned(dataset, sequence, seed).learner
    context.report("scoring", 0.9)
    is_unknown = np.isin(split.judge.y, unknown)
    novelty = learner.predict(split.judge.x).novelty
    assert novelty is not None
    kept = split.train.take(np.flatnonzero(np.isin(split.train.y, known)))
    distance = references.neighbour_distance(features_of(learner, kept.x), features_of(learner, split.judge.x))
    return {
        "auroc": metrics.auroc(novelty[is_unknown], novelty[~is_unknown]),
        "auroc_of_neighbours": metrics.auroc(distance[is_unknown], distance[~is_unknown]),
        "known_flagged": float((novelty[~is_unknown] > THRESHOLD).mean()),
        "unknown_flagged": float((novelty[is_unknown] > THRESHOLD).mean()),
        "left_out": [split.classes[c] for c in unknown],
    }


_TO_REACH = "not below 5-NN; 3 to 8 % of the known flagged"

EXPERIMENTS = (
    Experiment(
        GROUP,
        "banking77",
        "Banking77, 17 of 77 left out",
        partial(measure, dataset="banking77", left_out=17, per_episode=7),
        _TO_REACH,
    ),
    Experiment(
        GROUP,
        "fashion-mnist",
        "Fashion-MNIST, 2 of 10 left out",
        partial(measure, dataset="fashion-mnist", left_out=2, per_episode=2),
        _TO_REACH,
    ),
)
