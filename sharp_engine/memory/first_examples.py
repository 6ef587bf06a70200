"""The very first examples, taught before there was anything to measure features by: kept until a scale is known.

A scale that one example settles is a poor one, and it is settled for a learner's life. So what is known stays a
function of these few until they are enough, or an episode comes: then everything is taught again with the better scale,
and they go. It is a value: every change gives a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ENOUGH = 50
"""So many examples make a scale that is good enough to be kept."""


@dataclass(frozen=True)
class FirstExamples:
    """Fewer than `ENOUGH` of them, oldest first."""

    features: Tensor
    """(n, features) float32, before any scale"""
    class_ids: tuple[int, ...] = ()
    correct: tuple[bool, ...] = ()
    """Whether each may become a correction."""

    def joined(self, features: Tensor, class_ids: Sequence[int], correct: bool) -> FirstExamples:
        """With more of them."""
        return FirstExamples(
            torch.cat((self.features, features)),
            (*self.class_ids, *class_ids),
            (*self.correct, *([correct] * len(features))),
        )

    @property
    def few(self) -> bool:
        """Whether they are too few for a scale."""
        return len(self.class_ids) < ENOUGH

    def forget(self, class_id: int) -> FirstExamples:
        """Without those of one class."""
        kept = [row for row, known in enumerate(self.class_ids) if known != class_id]
        return FirstExamples(
            self.features[kept], tuple(self.class_ids[row] for row in kept), tuple(self.correct[row] for row in kept)
        )

    def merge(self, source: int, target: int) -> FirstExamples:
        """With those of one class as another's."""
        ids = tuple(target if known == source else known for known in self.class_ids)
        return FirstExamples(self.features, ids, self.correct)
