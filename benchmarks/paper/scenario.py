"""Which classes and which examples come in which episode.

No example is ever shown twice: where a class comes back, on blurry sequences, its examples are dealt out over its
appearances in equal parts. The paper is silent on this; a learner that met the same images again would be judged kinder
than a stream, which never repeats itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import DataError, require

CLASSES_PER_EPISODE = {"mnist": 2, "fashion-mnist": 2, "emnist-letters": 2, "cifar10": 2, "cifar100": 10}
"""The paper's sequences: adjacent classes come together."""

LEAST_EXAMPLES = 2
"""Of a class in an episode: the contrastive loss needs a pair."""

Sequence_ = tuple[tuple[int, ...], ...]
"""Class indices, episode by episode."""


@dataclass(frozen=True)
class Blurry:
    """The paper's generator of overlapping episodes."""

    classes: int
    """c: classes per episode."""
    novelty: float
    """η: the probability that a place goes to a class never seen before."""

    def __post_init__(self) -> None:
        require(self.classes >= 1, "c of blurry", self.classes, "at least 1")
        require(0.0 < self.novelty <= 1.0, "eta of blurry", self.novelty, "in (0, 1]")


@dataclass(frozen=True)
class Episode:
    """A stretch of the stream."""

    classes: tuple[int, ...]
    index: NDArray[np.int64]
    """(n,) positions of its examples in the training set, shuffled."""


def class_incremental(classes: int, per_episode: int) -> Sequence_:
    """Adjacent classes together, in label order; the last episode takes what is left.

    >>> class_incremental(5, 2)
    ((0, 1), (2, 3), (4,))
    """
    require(1 <= per_episode <= classes, "classes per episode", per_episode, f"from 1 to {classes}")
    return tuple(tuple(range(at, min(at + per_episode, classes))) for at in range(0, classes, per_episode))


def in_random_order(classes: int, per_episode: int, seed: int) -> Sequence_:
    """The same with the classes in an order that the seed draws."""
    order = np.random.default_rng((seed, 5)).permutation(classes).tolist()
    return tuple(tuple(order[i] for i in episode) for episode in class_incremental(classes, per_episode))


def blurry_sequence(classes: int, blurry: Blurry, seed: int) -> Sequence_:
    """Episodes that overlap: a first one of c random classes, then each place new with probability η, else seen.

    It ends with the episode in which the last class is seen; places left over by then go to seen classes.
    """
    c = blurry.classes
    require(c <= classes, "c of blurry", c, f"at most the number of classes, {classes}")
    random = np.random.default_rng((seed, 2))
    order: list[int] = random.permutation(classes).tolist()
    episodes = [tuple(order[:c])]
    seen, novel = order[:c], order[c:]
    while novel:
        episode: list[int] = []
        candidates = list(seen)  # not yet in this episode: never fewer than the places still free
        for _ in range(c):
            if novel and random.random() < blurry.novelty:
                episode.append(novel.pop(0))
            else:
                episode.append(candidates.pop(int(random.integers(len(candidates)))))
        seen += [class_id for class_id in episode if class_id not in seen]
        episodes.append(tuple(episode))
    return tuple(episodes)


def deal(y: NDArray[np.int64], sequence: Sequence[Sequence[int]], seed: int) -> tuple[Episode, ...]:
    """Examples for each episode: all of a class's, dealt out over its appearances, each episode shuffled."""
    random = np.random.default_rng((seed, 3))
    appearances = Counter(class_id for episode in sequence for class_id in episode)
    parts: dict[int, list[NDArray[np.int64]]] = {}
    for class_id, times in sorted(appearances.items()):
        members = random.permutation(np.flatnonzero(y == class_id))
        if len(members) < LEAST_EXAMPLES * times:
            raise DataError(
                f"class {class_id} has {len(members)} examples for {times} episodes: "
                f"it needs {LEAST_EXAMPLES} in each, so take a larger --fraction"
            )
        parts[class_id] = list(np.array_split(members, times))
    return tuple(
        Episode(tuple(episode), random.permutation(np.concatenate([parts[class_id].pop() for class_id in episode])))
        for episode in sequence
    )
