"""Masked k-NN over long-term memory: what answers predictions.

A predictor is immutable and may be used from any thread while the learner learns; a new one is made when an episode
ends. It computes only the units that some long-term mask needs; `matcher.py` compares them with the memories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.config import PredictionConfig
from sharp_engine.errors import NothingLearnedError
from sharp_engine.labels import Label, Labels
from sharp_engine.memory.long_term import LongTermMemory
from sharp_engine.network.compact import needed_subnetwork
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.state import Network
from sharp_engine.prediction.matcher import Matcher
from sharp_engine.prediction.novelty import NEIGHBOURS, NoveltyScale

_CHUNK = 128
"""Examples per pass: bounds the memory of a prediction, and small passes stay near the processor."""

_SHARE_TEMPERATURE = 0.1
"""Calibrated scores become shares by a softmax at this temperature."""

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
    """Share of the vote, in [0, 1]."""
    distance: float
    """Squared distance to the class's nearest memory, in [0, 2] for ReLU representations."""
    novelty: float | None
    """How far outside everything learned the example lies, in [0, 1]: see `novelty.py`; absent if not asked for."""
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


class Predictor:
    """Answers for the state of a learner at the end of an episode."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        network: Network,
        ltm: LongTermMemory,
        labels: Labels,
        config: PredictionConfig,
    ) -> None:
        if not ltm.classes:
            raise NothingLearnedError("nothing was learned yet: there is no class to name")
        self.episodes = max(memory.episode for memory in ltm.classes)
        self._preprocessor = preprocessor
        self._config = config
        self._labels = [labels.label(memory.class_id) for memory in ltm.classes]
        device = network.device
        self._episodes = torch.tensor([memory.episode for memory in ltm.classes])
        self._subnetwork = needed_subnetwork(network, torch.stack([memory.mask for memory in ltm.classes]).any(0))
        self._matcher = Matcher(ltm.classes, self._subnetwork.output_units)
        floor = torch.tensor([memory.floor for memory in ltm.classes], device=device)
        ceiling = torch.tensor([memory.ceiling for memory in ltm.classes], device=device)
        self._slope = 1.0 / (ceiling - floor)  # calibrated score = (similarity − floor) / (ceiling − floor)
        self._offset = -floor * self._slope
        self._novelty = NoveltyScale(ltm.classes, device)

    @property
    def classes(self) -> list[Label]:
        """The classes that answers can name."""
        return list(self._labels)

    @torch.inference_mode()
    def represent(self, x: Tensor) -> Tensor:
        """z of the units that memories need: (n, units)."""
        return self._subnetwork.f(self._subnetwork.g(self._preprocessor(x)))

    @torch.inference_mode()
    def novelty_ratios(self, x: Tensor) -> Tensor:
        """Uncalibrated novelty of examples: (n,)."""
        return torch.cat([self._ratios(self._similarity_to_classes(part)) for part in x.split(_CHUNK)])

    def _similarity_to_classes(self, x: Tensor) -> Tensor:
        few = self._matcher.best_of_each(self._matcher.compare(self.represent(x)), NEIGHBOURS)
        return self._matcher.class_similarity(few)

    def _ratios(self, similarity: Tensor) -> Tensor:
        """From similarities to classes, (n, classes): the least ratio, (n,)."""
        return -(similarity * self._novelty.slope + self._novelty.offset).amax(1)

    @torch.inference_mode()
    def predict(self, x: Tensor, top: int, memories: int, novelty: bool) -> Predictions:
        """Answer for validated examples x: (n, *input shape)."""
        parts = [self._predict(part, top, memories, novelty) for part in x.split(_CHUNK)]
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
            memory_episode=self._episodes.numpy()[joined["memory"]],
            memory_distance=joined["memory_distance"],
        )

    def _predict(self, x: Tensor, top: int, memories: int, novelty: bool) -> dict[str, NDArray[Any]]:
        matcher = self._matcher
        compared = matcher.compare(self.represent(x))
        top, memories = min(top, matcher.classes), min(memories, matcher.entries)
        majority = self._config.vote == "majority"
        k = min(self._config.neighbours, matcher.entries) if majority else 0
        few = matcher.best_of_each(compared, NEIGHBOURS if novelty or not majority else 1)  # (few, n, classes)
        best = few[0]  # (n, classes)
        near = best[:, :0]  # (n, k or memories), nearest first
        near_class = near.long()
        if k or memories:
            near, near_class = matcher.nearest(compared, best, max(k, memories))
        if majority and top <= 1:
            share, order = _winner(near_class[:, :k])
        elif majority:
            votes = F.one_hot(near_class[:, :k], matcher.classes).sum(1)  # (n, classes)
            order = _order(votes, best)[:, :top]
            share = votes.gather(1, order) / k
        else:
            scores = matcher.class_similarity(few) * self._slope + self._offset  # (n, classes)
            order = scores.topk(max(top, 1), dim=1).indices
            share = torch.softmax(scores / _SHARE_TEMPERATURE, dim=1).gather(1, order)
        classes, shares = order.cpu().numpy(), share.cpu().numpy()  # (n, at least top)
        distances = _distance(best.gather(1, order)).cpu().numpy()
        answer = {"winner": classes[:, 0], "share": shares[:, 0], "distance": distances[:, 0]}
        answer |= {"top": classes[:, :top], "top_share": shares[:, :top], "top_distance": distances[:, :top]}
        answer |= {"memory": near_class[:, :memories].cpu().numpy()}
        answer |= {"memory_distance": _distance(near[:, :memories]).cpu().numpy()}
        if novelty:
            answer |= {"novelty": self._novelty.calibrate(self._ratios(matcher.class_similarity(few))).cpu().numpy()}
        return answer


def _distance(similarity: Tensor) -> Tensor:
    return (2.0 - 2.0 * similarity).clamp_(min=0.0)  # rounding may take a cosine past 1


def _winner(near_class: Tensor) -> tuple[Tensor, Tensor]:
    """Share and class of the vote's winner, (n, 1) each; a tie goes to the class with the nearest entry."""
    k = near_class.shape[1]
    votes = (near_class[:, :, None] == near_class[:, None, :]).sum(2)  # (n, k) votes of each neighbour's class
    position = torch.arange(k, device=near_class.device)
    first = (votes * k - position).argmax(1, keepdim=True)  # most votes, then nearest; (n, 1)
    return votes.gather(1, first) / k, near_class.gather(1, first)


def _order(votes: Tensor, best: Tensor) -> Tensor:
    """Classes by votes, then by their nearest entry: (n, classes)."""
    by_distance = best.argsort(dim=1, descending=True, stable=True)
    by_votes = votes.gather(1, by_distance).argsort(dim=1, descending=True, stable=True)
    return by_distance.gather(1, by_votes)
