"""What a prediction says, and what everything that predicts has in common.

A predictor is immutable and may be used from any thread while the learner learns; a new one is made whenever the
learner knows more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.device import download
from sharp_engine.labels import Label

CHUNK = 128
"""Examples per pass: bounds the memory of a prediction, and small passes stay near the processor."""

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ClassVote:
    """How one class did."""

    label: Label
    share: float
    distance: float


@dataclass(frozen=True)
class NearMemory:
    """One of the memories nearest to an example."""

    label: Label
    episode: int
    distance: float


@dataclass(frozen=True)
class Prediction:
    """The answer for one example."""

    label: Label
    share: float
    """How sure the answer is, in [0, 1]: calibrated in the learned metric, in a vote the share of it."""
    distance: float
    """Distance to the class that is answered; no other class is nearer. In the learned metric to be compared within one
    learner only. In a vote squared and in [0, 2]: to the class's nearest memory, and for a class that did worse never
    less than for one that did better."""
    novelty: float | None
    """How far outside everything learned the example lies, in [0, 1]: absent if not asked for."""
    top: tuple[ClassVote, ...]
    nearest: tuple[NearMemory, ...]


@dataclass(frozen=True)
class Predictions:
    """The answers for a batch, as arrays; an item is a `Prediction`."""

    labels: list[Label]
    share: Floats
    """(n,)"""
    distance: Floats
    """(n,)"""
    novelty: Floats | None
    """(n,)"""
    top_labels: list[list[Label]]
    top_share: Floats
    """(n, top)"""
    top_distance: Floats
    """(n, top)"""
    memory_labels: list[list[Label]]
    memory_episode: Ids
    """(n, memories)"""
    memory_distance: Floats
    """(n, memories)"""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> Prediction:
        top = zip(self.top_labels[i], self.top_share[i].tolist(), self.top_distance[i].tolist(), strict=True)
        near = zip(
            self.memory_labels[i], self.memory_episode[i].tolist(), self.memory_distance[i].tolist(), strict=True
        )
        return Prediction(
            label=self.labels[i],
            share=float(self.share[i]),
            distance=float(self.distance[i]),
            novelty=None if self.novelty is None else float(self.novelty[i]),
            top=tuple(ClassVote(*vote) for vote in top),
            nearest=tuple(NearMemory(*memory) for memory in near),
        )

    def __iter__(self) -> Iterator[Prediction]:
        return (self[i] for i in range(len(self)))


def fetched(found: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Tensors as arrays, fetched together."""
    return {name: tensor.numpy() for name, tensor in download(found).items()}


def arranged(found: Mapping[str, NDArray[Any]], top: int) -> dict[str, NDArray[Any]]:
    """Arrays of an answer. Of `classes`, `shares` and `distances`, best first, the first is the winner's and the first
    few the top's; everything else keeps its name.
    """
    arrays = dict(found)
    for one, many in (("winner", "classes"), ("share", "shares"), ("distance", "distances")):
        ordered = arrays.pop(many)  # (n, at least top)
        arrays[one] = ordered[:, 0]
        arrays["top" if one == "winner" else f"top_{one}"] = ordered[:, :top]
    return arrays


class Predictor(ABC):
    """Answers for what a learner knew when this was made."""

    episodes: int
    """How many episodes were learned."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = list(labels)

    @property
    def classes(self) -> list[Label]:
        """The classes that answers can name."""
        return list(self._labels)

    def for_serving(self) -> Predictor:
        """The same answers, without what only the next predictor would be made from."""
        return self

    @torch.inference_mode()
    def predict(self, x: Tensor, top: int, memories: int, novelty: bool) -> Predictions:
        """Answer for validated examples x: (n, *input shape)."""
        chunks = x.split(CHUNK) if len(x) > CHUNK else (x,)
        parts = [self._answer(part, top, memories, novelty) for part in chunks]
        joined = parts[0]
        if len(parts) > 1:
            joined = {key: np.concatenate([part[key] for part in parts]) for key in joined}
        name = self._labels
        return Predictions(
            labels=[name[i] for i in joined["winner"]],
            share=joined["share"],
            distance=joined["distance"],
            novelty=joined.get("novelty"),
            top_labels=[[name[i] for i in row] for row in joined["top"]],
            top_share=joined["top_share"],
            top_distance=joined["top_distance"],
            memory_labels=[[name[i] for i in row] for row in joined["memory"]],
            memory_episode=joined["memory_episode"],
            memory_distance=joined["memory_distance"],
        )

    @abstractmethod
    def _answer(self, x: Tensor, top: int, memories: int, novelty: bool) -> dict[str, NDArray[Any]]:
        """Arrays by name for one chunk of examples; classes are places in `classes`.

        winner, share, distance, top, top_share, top_distance, memory, memory_episode, memory_distance, and novelty
        where it is asked for.
        """
