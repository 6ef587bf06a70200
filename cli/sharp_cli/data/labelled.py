"""Examples and their labels, divided into parts, episodes and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from sharp_cli.data.findings import Findings
from sharp_cli.data.images import ImageFacts


class Part(StrEnum):
    """Which part of the data to use."""

    ALL = "all"
    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True)
class LabelledData:
    """Examples and their labels."""

    x: Any
    """An array, or a list of paths."""
    y: Sequence[str | int]
    """One label each."""
    name: str
    """Its name."""
    facts: Sequence[ImageFacts] = ()
    """What each image is, where `x` is a list of paths."""
    findings: Findings = field(default_factory=Findings)
    """What reading it came upon."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Sequence[int]) -> LabelledData:
        """Select examples by index."""
        x = [self.x[i] for i in indices] if isinstance(self.x, list) else self.x[np.asarray(indices, int)]
        facts = [self.facts[i] for i in indices] if self.facts else ()
        return LabelledData(x, [self.y[i] for i in indices], self.name, facts, self.findings)

    def part(self, part: Part) -> LabelledData:
        """Select all of it, every fifth example of each class (test), or the others (train)."""
        if part is Part.ALL:
            return self
        seen: dict[str | int, int] = {}
        chosen = []
        for index, label in enumerate(self.y):
            seen[label] = seen.get(label, 0) + 1
            if (seen[label] % 5 == 0) == (part is Part.TEST):
                chosen.append(index)
        return self.take(chosen)

    @property
    def classes(self) -> list[str | int]:
        """Its classes, sorted."""
        return sorted(set(self.y), key=lambda label: (isinstance(label, str), label))

    def episodes(self, classes_per_episode: int, seed: int) -> list[LabelledData]:
        """Divide it by classes, some for each episode, and mix the examples within each; 0: all in one."""
        classes = self.classes
        step = classes_per_episode or len(classes)
        mixer = np.random.default_rng(seed)
        episodes = []
        for start in range(0, len(classes), step):
            chosen = set(classes[start : start + step])
            indices = [index for index, label in enumerate(self.y) if label in chosen]
            episodes.append(self.take(mixer.permutation(indices).tolist()))
        return episodes

    def batches(self, size: int) -> Iterator[LabelledData]:
        """Split it into batches."""
        for start in range(0, len(self), size):
            yield self.take(range(start, min(start + size, len(self))))
