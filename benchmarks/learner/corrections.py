"""Whether examples that were answered wrong are right once they are taught, and whether anything else suffers.

For single classes: three wrong answers of one class, taught and then taught again. And a hundred at once, over all
classes. What is taught is taken out of the test set before anything is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.learner import metrics
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment
from benchmarks.learner.sequences import predict, usual_learner
from benchmarks.learner.summary import Figures
from sharp_engine import Learner

GROUP = "corrections"
PER_CLASS = 3
MANY = 100
CLASSES = {"fashion-mnist": 6, "banking77": 8, "cifar10": 6}
"""How many classes are corrected, one by one: twenty over all data sets."""


def measure(context: Context, seed: int, dataset: str) -> Figures:
    """Each class with a copy of the same learner, and a hundred corrections with another."""
    judge = context.split(dataset, seed).judge
    learner = usual_learner(context, dataset, seed).learner
    answers = predict(learner, judge)
    random = np.random.default_rng((seed, 8))
    wrong = random.permutation(np.flatnonzero(answers != judge.y))
    by_class = {c: wrong[judge.y[wrong] == c][:PER_CLASS] for c in random.permutation(np.unique(judge.y)).tolist()}
    able = [c for c, index in by_class.items() if len(index) == PER_CLASS][: CLASSES[dataset]]
    figures: Figures = {"accuracy": metrics.accuracy(judge.y, answers), "classes": len(able), "by_class": []}
    for number, class_id in enumerate(able):
        context.report(f"class {number + 1} of {len(able)}", number / (len(able) + 1))
        copy = usual_learner(context, dataset, seed).learner
        found = correct(copy, judge, answers, by_class[class_id], [class_id])
        figures["by_class"].append({"class": class_id, **found})
    figures |= {"single": _together(figures["by_class"])} if able else {}
    context.report(f"{MANY} corrections", 0.9)
    chosen = wrong[:MANY]
    many = correct(learner, judge, answers, chosen, sorted(set(judge.y[chosen].tolist())), one_by_one=True)
    return {**figures, "many": {"corrections": len(chosen), **many}}


def correct(
    learner: Learner,
    judge: Examples,
    answers: metrics.Ints,
    index: metrics.Ints,
    classes: Sequence[int],
    *,
    one_by_one: bool = False,
) -> Figures:
    """Teach the examples at `index`, then teach them again: which are right, and what the others became.

    `right_when_taught` is the share that is right as soon as it is taught, `right` the share after all were taught.
    `answers` are those before. A loss is how much lower the accuracy on the rest has become: on `classes`, on the worst
    of them, and over all classes.
    """
    taught = judge.take(index)
    rest = np.setdiff1d(np.arange(len(judge)), index)
    others = judge.take(rest)
    figures: Figures = {}
    for time in ("once", "twice"):
        at_once = []
        for part in _parts(taught) if one_by_one else [taught]:
            learner.teach(part.x, part.y)
            at_once += (predict(learner, part) == part.y).tolist()
        now = predict(learner, others)
        losses = [
            metrics.accuracy(others.y, answers[rest], [c]) - metrics.accuracy(others.y, now, [c]) for c in classes
        ]
        figures[time] = {
            "right_when_taught": float(np.mean(at_once)) if at_once else float("nan"),
            "right": float((predict(learner, taught) == taught.y).mean()) if len(taught) else float("nan"),
            "class_loss": float(np.nanmean(losses)) if losses else float("nan"),
            "worst_class_loss": float(np.nanmax(losses)) if losses else float("nan"),
            "overall_loss": metrics.accuracy(others.y, answers[rest]) - metrics.accuracy(others.y, now),
        }
    return figures


def _parts(examples: Examples) -> list[Examples]:
    return [examples.take(np.array([i])) for i in range(len(examples))]


_FIGURES = ("right_when_taught", "right", "class_loss", "overall_loss")


def _together(found: Sequence[Figures]) -> Figures:
    """Over classes that were corrected one by one: means, and the largest losses."""
    together: Figures = {}
    for time in ("once", "twice"):
        values = {name: [one[time][name] for one in found] for name in _FIGURES}
        together[time] = {name: float(np.mean(of_classes)) for name, of_classes in values.items()}
        together[time] |= {f"worst_{name}": float(max(values[name])) for name in ("class_loss", "overall_loss")}
    return together


EXPERIMENTS = tuple(
    Experiment(GROUP, dataset, title, partial(measure, dataset=dataset), "all right, no loss above 0.5")
    for dataset, title in (("fashion-mnist", "Fashion-MNIST"), ("banking77", "Banking77"), ("cifar10", "CIFAR10"))
)
