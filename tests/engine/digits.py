"""scikit-learn's digits as a stream: five episodes of two classes, adjacent classes together."""

from __future__ import annotations

from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from sharp_engine import Learner, LearnerConfig

Split = tuple[Tensor, list[int]]


@lru_cache
def digits() -> tuple[list[Split], Split]:
    """The five episodes' training examples, and a quarter of all as test: (n, 1, 16, 16) in [0, 1].

    Pixels are doubled, so that two poolings leave 4×4 positions: nearer to the 7×7 that the paper's network sees.
    """
    raw = load_digits()
    x = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 16.0
    x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    y = torch.tensor(raw.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    test, train = order[:450], order[450:]
    episodes = []
    for number in range(5):
        members = train[y[train] // 2 == number]
        episodes.append((x[members], y[members].tolist()))
    return episodes, (x[test], y[test].tolist())


def learn_digits(config: LearnerConfig) -> Learner:
    """A learner after the five episodes."""
    learner = Learner(config)
    for x, y in digits()[0]:
        learner.learn_episode(x, y)
    return learner


def accuracy(learner: Learner) -> float:
    """Over all ten classes of the test set."""
    x, y = digits()[1]
    answers = learner.predict(x, novelty=False).labels
    return sum(answer == label for answer, label in zip(answers, y, strict=True)) / len(y)
