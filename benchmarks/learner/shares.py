"""Whether a share of 0.8 means right four times in five: the expected calibration error after a whole sequence."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.learner import metrics
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import Experiment
from benchmarks.learner.sequences import usual_learner
from benchmarks.learner.summary import Figures

GROUP = "shares"


def measure(context: Context, seed: int, dataset: str) -> Figures:
    """After the data set's usual sequence."""
    judge = context.split(dataset, seed).judge
    found = usual_learner(context, dataset, seed).learner.predict(judge.x, novelty=False)
    right = np.asarray(found.labels, dtype=np.int64) == judge.y
    share = np.asarray(found.share, dtype=np.float64)
    return {
        "calibration_error": metrics.expected_calibration_error(share, right),
        "mean_share": float(share.mean()),
        "right": float(right.mean()),
    }


EXPERIMENTS = tuple(
    Experiment(GROUP, dataset, title, partial(measure, dataset=dataset), "at most 0.03")
    for dataset, title in (("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST"), ("banking77", "Banking77"))
)
