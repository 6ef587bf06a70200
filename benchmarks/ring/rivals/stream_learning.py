"""River's naive Bayes: the learner of River that a class-incremental stream suits best.

Its other multiclass learners are trees and linear models, which forget what no longer comes or need hours for 784
values at one example a time; this one has counts, so the order does not matter. Vectors and colours are Gaussian;
grey pixels are black or not, because River's Gaussians break on margins that never vary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from river import naive_bayes

from benchmarks.ring.protocol import Inputs, Ints
from benchmarks.ring.rivals.contestant import Kept, Setup, in_chunks
from benchmarks.ring.rivals.scikit import rows


class RiverNaiveBayes:
    """The contestant."""

    def __init__(self, setup: Setup) -> None:
        self.gaussian = setup.vectors or setup.shape[0] != 1
        self.model = naive_bayes.GaussianNB() if self.gaussian else naive_bayes.BernoulliNB()

    def learn(self, x: Inputs, y: Ints) -> None:
        """In mini-batches, as River allows."""
        examples = rows(x)
        for at in range(0, len(y), 1000):
            self.model.learn_many(pd.DataFrame(examples[at : at + 1000]), pd.Series(y[at : at + 1000]))

    def predict(self, x: Inputs) -> Ints:
        """The likeliest class."""

        def chunk(part: Inputs) -> Ints:
            likelihoods = self.model.joint_log_likelihood_many(pd.DataFrame(part))
            classes = np.asarray(likelihoods.columns, dtype=np.int64)
            found: Ints = classes[np.asarray(likelihoods).argmax(1)]
            return found

        return in_chunks(chunk, rows(x), 2000)

    def kept(self) -> Kept:
        """Counts, and of Gaussians mean and deviation; River's own objects take a hundred times as much."""
        classes = np.array(sorted(self.model.class_counts.items()), dtype=np.float64)
        if self.gaussian:
            found = [
                [(one.n_samples, one.mu, one.sigma) for _, one in sorted(by_value.items())]
                for _, by_value in sorted(self.model.gaussians.items())
            ]
        else:
            labels = sorted(self.model.class_counts)
            found = [
                [by_class.get(label, 0) for label in labels]
                for _, by_class in sorted(self.model.feature_counts.items())
            ]
        return Kept([np.array(found, dtype=np.float64), classes])

    def settings(self) -> dict[str, Any]:
        """For the reader."""
        return {"code": "River", "model": type(self.model).__name__}
