"""The README's first example, on flowers that it has not seen: at least as good as a nearest neighbour."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from sharp_engine import Learner, preset

SPLITS = 8


def test_the_first_example_is_not_below_a_nearest_neighbour() -> None:
    x, y = load_iris(return_X_y=True)
    ours, nearest = [], []
    for seed in range(SPLITS):
        known, unseen, labels, truth = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
        learner = Learner(preset("default"))
        for episode in (labels < 2, labels == 2):
            learner.learn_episode(known[episode], labels[episode])
        ours.append(np.mean(np.array(learner.predict(unseen).labels) == truth))
        nearest.append(KNeighborsClassifier(1).fit(known, labels).score(unseen, truth))
    assert np.mean(ours) >= np.mean(nearest)
