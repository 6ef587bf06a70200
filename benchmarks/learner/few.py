"""Classes taught with 1, 5 or 20 examples beside classes of hundreds, and what plain methods make of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.errors import DataError
from benchmarks.learner import metrics, references
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment
from benchmarks.learner.features import features_of
from benchmarks.learner.references import Rows
from benchmarks.learner.sequences import predict
from benchmarks.learner.summary import Figures

GROUP = "few"
NUMBERS = (1, 5, 20)
"""Examples of each class that is taught."""


@dataclass(frozen=True)
class Scene:
    """Which classes are there, which of them are taught with few examples, and how the others come."""

    dataset: str
    few: int
    per_episode: int
    known: int | None = None
    """How many other classes are learned; all of them unless it is given."""

    def draw(self, classes: int, seed: int) -> tuple[list[int], list[int]]:
        """Classes of few and the others, in the order in which they come."""
        known = classes - self.few if self.known is None else self.known
        order = np.random.default_rng((seed, 6)).permutation(classes).tolist()
        return sorted(order[: self.few]), order[self.few : self.few + known]


def measure(context: Context, seed: int, scene: Scene) -> Figures:
    """The others learned in episodes; then, for each number, a copy is taught the classes of few."""
    split = context.split(scene.dataset, seed)
    few, known = scene.draw(len(split.classes), seed)
    step = scene.per_episode
    sequence = tuple(tuple(known[at : at + step]) for at in range(0, len(known), step))
    judge = split.judge.take(np.flatnonzero(np.isin(split.judge.y, [*few, *known])))
    many = split.train.take(np.flatnonzero(np.isin(split.train.y, known)))
    figures: Figures = {"classes": {"few": [split.classes[c] for c in few], "others": len(known)}}
    settled: tuple[Rows, Rows] | None = None  # features of many and of the queries: of every copy the same
    for number in NUMBERS:
        taught = draw_examples(split.train, few, number, seed)
        found = context.learned(scene.dataset, sequence, seed)
        context.report(f"{number} taught", 0.9)
        for class_id in few:
            part = taught.take(np.flatnonzero(taught.y == class_id))
            found.learner.teach(part.x, part.y)
        if settled is None:
            settled = features_of(found.learner, many.x), features_of(found.learner, judge.x)
        x = np.concatenate((settled[0], features_of(found.learner, taught.x)))
        figures[str(number)] = {
            "learner": metrics.divided(judge.y, predict(found.learner, judge), few).to_dict(),
            **beside(x, np.concatenate((many.y, taught.y)), settled[1], judge.y, few),
        }
    return figures


def beside(x: Rows, y: metrics.Ints, queries: Rows, truth: metrics.Ints, few: Sequence[int]) -> Figures:
    """The plain methods, on the learner's own features."""
    answers = {
        "discriminant": references.discriminant(x, y, queries),
        "neighbours": references.nearest_neighbours(x, y, queries),
    }
    return {name: metrics.divided(truth, found, few).to_dict() for name, found in answers.items()}


def draw_examples(train: Examples, classes: Sequence[int], number: int, seed: int) -> Examples:
    """So many examples of each class; the first of a larger number are those of a smaller one."""
    random = np.random.default_rng((seed, 7))
    index = []
    for class_id in classes:
        members = random.permutation(np.flatnonzero(train.y == class_id))
        if len(members) < number:
            raise DataError(f"class {class_id} has {len(members)} examples to teach, not {number}: larger --fraction")
        index.append(members[:number])
    return train.take(np.concatenate(index))


_AHEAD = "ahead of both over all"


def _experiment(case: str, title: str, scene: Scene, to_reach: str = _AHEAD) -> Experiment:
    return Experiment(GROUP, case, title, partial(measure, scene=scene), to_reach)


EXPERIMENTS = (
    _experiment(
        "banking77",
        "Banking77, 8 of 77",
        Scene("banking77", 8, 7),
        f"with 5 at least 85, with 1 at least 70, the others at least 90; {_AHEAD}",
    ),
    _experiment("fashion-mnist", "Fashion-MNIST, 2 of 10", Scene("fashion-mnist", 2, 2)),
    _experiment("fashion-mnist-third", "Fashion-MNIST, a third beside two", Scene("fashion-mnist", 1, 2, known=2)),
    _experiment("cifar10", "CIFAR10, 2 of 10", Scene("cifar10", 2, 2)),
    _experiment("cifar10-third", "CIFAR10, a third beside two", Scene("cifar10", 1, 2, known=2)),
)
