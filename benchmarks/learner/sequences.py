"""Accuracy after every class came once, a few per episode, with the time and the bytes that it took."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.learner import metrics
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment
from benchmarks.learner.learning import Learned
from benchmarks.learner.summary import Figures
from benchmarks.paper import published, scenario
from benchmarks.paper.scenario import Blurry, Sequence_
from sharp_engine import Learner

GROUP = "sequences"
ORDERS = 5
BLURRY = Blurry(3, 0.3)

MakeSequence = Callable[[int, int], Sequence_]
"""From the number of classes and the seed."""

SEQUENCES: dict[str, MakeSequence] = {
    **{name: (lambda classes, seed: scenario.class_incremental(classes, 2)) for name in
       ("mnist", "fashion-mnist", "cifar10", "letters", "digits")},
    "cifar100": lambda classes, seed: scenario.class_incremental(classes, 10),
    "banking77": lambda classes, seed: scenario.in_random_order(classes, 7, seed),
}  # fmt: skip
"""The usual sequence of each data set, which the other experiments learn too."""


def predict(learner: Learner, examples: Examples) -> metrics.Ints:
    """The classes that a learner takes examples for."""
    return np.asarray(learner.predict(examples.x, novelty=False).labels, dtype=np.int64)


def usual_learner(context: Context, dataset: str, seed: int) -> Learned:
    """The learner after a data set's usual sequence."""
    classes = len(context.split(dataset, seed).classes)
    return context.learned(dataset, SEQUENCES[dataset](classes, seed), seed)


def class_by_class(context: Context, seed: int, dataset: str) -> Figures:
    """The usual sequence."""
    return _figures(context, dataset, seed, usual_learner(context, dataset, seed))


def one_at_a_time(context: Context, seed: int, dataset: str) -> Figures:
    """As many episodes as classes, in a random order."""
    classes = len(context.split(dataset, seed).classes)
    sequence = scenario.in_random_order(classes, 1, seed)
    return _figures(context, dataset, seed, context.learned(dataset, sequence, seed))


def in_another_order(context: Context, order: int, dataset: str) -> Figures:
    """A random order of classes; all else is that of the first seed, so that only the order differs."""
    seed = context.options.seeds[0]
    classes = len(context.split(dataset, seed).classes)
    sequence = scenario.in_random_order(classes, 2, order)
    return _figures(context, dataset, seed, context.learned(dataset, sequence, seed))


def blurry(context: Context, seed: int, dataset: str, boundaries: str) -> Figures:
    """Overlapping episodes, with marks or without any."""
    classes = len(context.split(dataset, seed).classes)
    sequence = scenario.blurry_sequence(classes, BLURRY, seed)
    found = context.learned(dataset, sequence, seed, stream__blurry=True, stream__boundaries=boundaries)
    return {"episodes_given": len(sequence), **_figures(context, dataset, seed, found)}


def _figures(context: Context, dataset: str, seed: int, found: Learned) -> Figures:
    split = context.split(dataset, seed)
    answers = predict(found.learner, split.judge)
    return {"accuracy": metrics.accuracy(split.judge.y, answers), "judged": len(split.judge), **found.to_dict()}


def _usual(dataset: str, title: str, to_reach: str = "") -> Experiment:
    joint = published.figures(dataset, "full").get("Joint (upper bound)")
    measure = partial(class_by_class, dataset=dataset)
    return Experiment(GROUP, dataset, title, measure, to_reach, None if joint is None else joint.mean / 100)


def _blurry(boundaries: str) -> Experiment:
    title = f"MNIST, blurry, c = {BLURRY.classes}, η = {BLURRY.novelty:g}, boundaries {boundaries}"
    measure = partial(blurry, dataset="mnist", boundaries=boundaries)
    return Experiment(GROUP, f"mnist-blurry-{boundaries}", title, measure, "within 0.5 of MNIST, 5 × 2")


EXPERIMENTS = (
    _usual("mnist", "MNIST, 5 × 2", "at least 98.5"),
    _usual("fashion-mnist", "Fashion-MNIST, 5 × 2", "at least 89"),
    _usual("cifar10", "CIFAR10, 5 × 2, the images at hand", "at least 71"),
    _usual("cifar100", "CIFAR100, 10 × 10, the images at hand", "at least 41"),
    _usual("banking77", "Banking77 embeddings, 11 × 7, random order", "at least 92.5"),
    Experiment(
        GROUP,
        "banking77-single",
        "Banking77 embeddings, 77 × 1, random order",
        partial(one_at_a_time, dataset="banking77"),
        "within 0.5 of 11 × 7",
    ),
    _usual("digits", "scikit-learn's digits, 5 × 2, as in the demo", "at least 98"),
    _usual("letters", "letters, 13 × 2"),
    Experiment(
        GROUP,
        "fashion-mnist-orders",
        f"Fashion-MNIST, {ORDERS} random orders of classes",
        partial(in_another_order, dataset="fashion-mnist"),
        "spread at most 1",
        seeds=tuple(range(ORDERS)),
    ),
    _blurry("automatic"),
    _blurry("explicit"),
)
