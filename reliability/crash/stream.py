"""The numbered stream: what the producer sends under each sequence number. The same for the same seed, always."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliability.crash.options import CrashOptions


@dataclass(frozen=True)
class Batch:
    """Some labelled examples."""

    x: NDArray[np.float32]
    y: list[str]


_OPERATIONS = ("keep", "forget", "restore", "undo")


class NumberedStream:
    """Episodes of a fixed number of batches, each ended by a mark; numbers start with 1.

    >>> stream = NumberedStream(CrashOptions(batches=2))
    >>> [stream.is_mark(number) for number in range(1, 7)]
    [False, False, True, False, False, True]
    >>> stream.episode_of(4)
    2
    >>> stream.batch(4).y[:2] == stream.batch(5).y[:2]
    True
    """

    def __init__(self, options: CrashOptions) -> None:
        self._options = options
        corners = np.random.default_rng(options.seed)
        self._corners = corners.random((options.classes, options.features), np.float32)

    def is_mark(self, sequence: int) -> bool:
        """Whether this number ends an episode."""
        return sequence % (self._options.batches + 1) == 0

    def episode_of(self, sequence: int) -> int:
        """The episode that a number belongs to, from 1 on."""
        return (sequence - 1) // (self._options.batches + 1) + 1

    def batch(self, sequence: int) -> Batch:
        """What is sent under a number that is no mark."""
        options = self._options
        first = 2 * (self.episode_of(sequence) - 1) % options.classes
        classes = np.arange(options.examples) % 2 + first
        noise = np.random.default_rng((options.seed, sequence)).random((options.examples, options.features), np.float32)
        return Batch(0.7 * self._corners[classes] + 0.3 * noise, [name(number) for number in classes.tolist()])

    def has_lesson(self, sequence: int) -> bool:
        """Whether a lesson is taught before the batch of this number, and after everything before it."""
        between = sequence % self._options.lessons == 0 and not self.is_mark(sequence)
        return between and self.operation(self.episode_of(sequence)) is None

    def lesson(self, sequence: int) -> Batch:
        """That lesson: two examples; now and then with labels that contradict what is known, as corrections do."""
        options = self._options
        chance = np.random.default_rng((options.seed, sequence, 1))
        classes = chance.integers(0, options.classes, 2)
        noise = chance.random((2, options.features), np.float32)
        labels = classes if chance.random() < 0.7 else (classes + 1) % options.classes
        return Batch(0.7 * self._corners[classes] + 0.3 * noise, [name(number) for number in labels.tolist()])

    def operation(self, episode: int) -> str | None:
        """What an operator does after an episode (`operations`), before anything else is sent."""
        turn, rest = divmod(episode, self._options.operations)
        return None if rest else _OPERATIONS[(turn - 1) % len(_OPERATIONS)]

    def forgotten(self, episode: int) -> str:
        """The class that is forgotten after an episode: one of its own."""
        return name(2 * (episode - 1) % self._options.classes)

    def probes(self) -> NDArray[np.float32]:
        """One example of each class, which the app asks about."""
        return self._corners.copy()


def name(number: int) -> str:
    """The label of a class."""
    return f"class {number}"
