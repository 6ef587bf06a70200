"""How good the answers are: on representatives, each scored as if it had never been learned.

It is measured wherever the metric is made anew. Corrections have no part in it, for they are known by heart, nor has
the network's vote, which joins only where it helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sharp_engine.labels import Label


@dataclass(frozen=True)
class ClassQuality:
    """How examples of one class are answered."""

    label: Label
    examples: int
    right: int

    @property
    def accuracy(self) -> float:
        """Share of the examples that are answered right."""
        return self.right / self.examples


@dataclass(frozen=True)
class Confusion:
    """Examples of one class that are answered with another."""

    truth: Label
    answered: Label
    count: int


@dataclass(frozen=True)
class Quality:
    """Figures on held-out examples. A learner keeps them by class id, and gives them by label."""

    classes: tuple[ClassQuality, ...]
    """Every class that has examples, in the order in which they became known."""
    confusions: tuple[Confusion, ...]
    """Every pair that occurs, largest first."""

    @property
    def examples(self) -> int:
        """How many examples were held out."""
        return sum(known.examples for known in self.classes)

    @property
    def accuracy(self) -> float:
        """Share of all examples that are answered right."""
        return sum(known.right for known in self.classes) / self.examples

    def named(self, label: Callable[[int], Label]) -> Quality:
        """The same by label, from class ids."""
        name = {known.label: label(int(known.label)) for known in self.classes}
        for pair in self.confusions:  # a class with no example of its own may be answered
            name.setdefault(pair.answered, label(int(pair.answered)))
        return Quality(
            tuple(replace(known, label=name[known.label]) for known in self.classes),
            tuple(replace(pair, truth=name[pair.truth], answered=name[pair.answered]) for pair in self.confusions),
        )

    def without(self, class_id: int) -> Quality | None:
        """Without a class, and without examples that were answered with it; nothing if none is left."""
        lost = {pair.truth: pair.count for pair in self.confusions if pair.answered == class_id}
        classes = (replace(c, examples=c.examples - lost.get(c.label, 0)) for c in self.classes if c.label != class_id)
        left = tuple(known for known in classes if known.examples)
        pairs = tuple(pair for pair in self.confusions if class_id not in (pair.truth, pair.answered))
        return Quality(left, pairs) if left else None


def measure(answers: Counter[tuple[int, int]], class_ids: Iterable[int]) -> Quality:
    """From how often which class id was answered for which, the true one first; `class_ids`: all, in order."""
    seen: Counter[int] = Counter()
    for (truth, _), count in answers.items():
        seen[truth] += count
    wrong = sorted((-n, truth, answered) for (truth, answered), n in answers.items() if n and truth != answered)
    return Quality(
        tuple(ClassQuality(i, seen[i], answers[i, i]) for i in class_ids if seen[i]),
        tuple(Confusion(truth, answered, -count) for count, truth, answered in wrong),
    )
