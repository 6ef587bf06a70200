"""Masked k-NN over long-term memory: what answers predictions.

A predictor is immutable and may be used from any thread while the learner learns; a new one is made when an episode
ends. It computes only the units that some long-term mask needs, and compares a whole batch with all memories in two
matrix products: one with the memories, one with the masks, as ‖φ(c·m) − φ(z·m)‖² = 2 − 2·cos over the mask's units.
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

from sharp_engine.compact import indices, needed_subnetwork
from sharp_engine.config import PredictionConfig
from sharp_engine.duels import LEADING, Duels
from sharp_engine.errors import NothingLearnedError
from sharp_engine.front import Front
from sharp_engine.labels import Label, Labels
from sharp_engine.ltm import ClassMemory, LongTermMemory
from sharp_engine.network import Network
from sharp_engine.novelty import NEIGHBOURS, NoveltyScale

_CHUNK = 1024
"""Examples per pass: bounds the memory of a prediction."""

_SHARE_TEMPERATURE = 0.1
"""Calibrated scores become shares by a softmax at this temperature …"""

_LOOKED = 16
"""… over the leading classes, at least this many: the shares of the others are negligible."""

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


class Matcher:
    """Compares representations with every memory. The memories stand in a grid: classes × depth, padded.

    Similarity is 1 − distance / 2: the cosine, unless one of the two vectors is zero.
    """

    def __init__(self, memories: tuple[ClassMemory, ...], units: Tensor) -> None:
        """`units`: indices, among all output units, of those that representations will have."""
        device = units.device
        counts = torch.tensor([len(memory.vectors) for memory in memories], device=device)  # (classes,)
        self.classes, self.depth, self.entries = len(memories), int(counts.max()), int(counts.sum())
        grid = torch.zeros(self.classes, self.depth, len(units), device=device)
        masks: dict[bytes, int] = {}
        group = []
        for row, memory in enumerate(memories):
            mask = memory.mask[units]  # (units,)
            grid[row, : len(memory.vectors)][:, mask] = memory.vectors
            group.append(masks.setdefault(mask.cpu().numpy().tobytes(), len(masks)))
        self._group = torch.tensor(group, device=device)  # (classes,)
        columns = np.stack([np.frombuffer(key, dtype=bool) for key in masks], axis=1)
        self._masks = torch.from_numpy(columns).float().to(device)  # (units, groups)
        self._memories = grid.flatten(0, 1).T.contiguous()  # (units, classes · depth)
        absent = torch.arange(self.depth, device=device)[None, :] >= counts[:, None]  # (classes, depth)
        zero = ~absent & ~grid.any(2)
        self._absent = absent if bool(absent.any()) else None
        self._zero = zero if bool(zero.any()) else None
        self._few = counts.clamp(max=NEIGHBOURS)  # (classes,) memories that a class's similarity is averaged over

    def similarities(self, z: Tensor) -> Tensor:
        """To all memories, −∞ where the grid is padded: (n, classes, depth)."""
        norms = ((z * z) @ self._masks)[:, self._group]  # (n, classes) squared lengths over each class's mask
        silent = norms <= 0
        scale = norms.clamp(min=1e-30).rsqrt().masked_fill(silent, 0.0)
        similarity = (z @ self._memories).view(len(z), self.classes, self.depth).mul_(scale[:, :, None])
        if self._zero is not None or bool(silent.any()):  # a zero vector is 1 from all others and 0 from another zero
            zero = torch.zeros_like(similarity[0], dtype=torch.bool) if self._zero is None else self._zero
            same = (silent[:, :, None] == zero).float().mul_(0.5).add_(0.5)
            similarity = torch.where(silent[:, :, None] | zero, same, similarity)
        if self._absent is not None:
            similarity.masked_fill_(self._absent, -torch.inf)
        return similarity

    def nearest(self, similarity: Tensor, best: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarity and class of the k nearest memories, nearest first: (n, k) each.

        They all belong to the k classes with the nearest memories, so only those are searched.
        """
        rows = best.topk(min(k, self.classes), dim=1).indices if k else best[:, :0].long()  # (n, c)
        candidates = self._take(similarity, rows).flatten(1)  # (n, c · depth)
        values, index = candidates.topk(k, dim=1)
        return values, rows.gather(1, index // self.depth)

    def leading(
        self, similarity: Tensor, best: Tensor, slope: Tensor, offset: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """Scores and classes with the largest slope · similarity + offset, (n, at least count) each, in order.

        A class's similarity is the mean over its few nearest memories, so its nearest one gives an upper bound: classes
        whose bound is small need not be looked at. The first `count` are exact; those behind are the others looked at.
        """
        looked = max(4 * count, _LOOKED)
        if looked >= self.classes:
            return _sorted(self.class_similarity(similarity) * slope + offset)
        limits, rows = (best * slope + offset).topk(looked + 1, dim=1)
        rows = rows[:, :looked]
        means = self._mean_of_few(self._take(similarity, rows), rows)  # (n, looked)
        scores, order = _sorted(means * slope[rows] + offset[rows])
        classes = rows.gather(1, order)
        unsure = indices(limits[:, -1] > scores[:, count - 1])  # some class not looked at could be better
        if len(unsure):
            every, order = _sorted(self.class_similarity(similarity[unsure]) * slope + offset)
            scores[unsure], classes[unsure] = every[:, :looked], order[:, :looked]
        return scores, classes

    def class_similarity(self, similarity: Tensor) -> Tensor:
        """Of every class: the mean over its few nearest memories, (n, classes)."""
        return self._mean_of_few(similarity, torch.arange(self.classes, device=similarity.device))

    def _take(self, similarity: Tensor, rows: Tensor) -> Tensor:
        return similarity.gather(1, rows[:, :, None].expand(-1, -1, self.depth))

    def _mean_of_few(self, similarity: Tensor, rows: Tensor) -> Tensor:
        """Mean of the few largest, per class: (n, c, depth) of classes `rows` → (n, c)."""
        largest = similarity.topk(min(NEIGHBOURS, self.depth), dim=2).values
        if self._absent is None:
            return largest.mean(2)
        return largest.masked_fill(largest.isinf(), 0.0).sum(2) / self._few[rows]


class Predictor:
    """Answers for the state of a learner at the end of an episode."""

    def __init__(
        self, front: Front, network: Network, ltm: LongTermMemory, labels: Labels, config: PredictionConfig
    ) -> None:
        if not ltm.classes:
            raise NothingLearnedError("nothing was learned yet: there is no class to name")
        self.episodes = max(memory.episode for memory in ltm.classes)
        self._front = front
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
        self._duels = Duels(ltm.classes, self._subnetwork.output_units) if config.vote == "duels" else None

    @property
    def classes(self) -> list[Label]:
        """The classes that answers can name."""
        return list(self._labels)

    @torch.inference_mode()
    def represent(self, x: Tensor) -> Tensor:
        """z of the units that memories need: (n, units)."""
        return self._subnetwork.f(self._subnetwork.g(self._front(x)))

    @torch.inference_mode()
    def novelty_ratios(self, x: Tensor) -> Tensor:
        """Uncalibrated novelty of examples: (n,)."""
        return torch.cat([self._ratios(self._matcher.similarities(self.represent(part))) for part in x.split(_CHUNK)])

    def _ratios(self, similarity: Tensor) -> Tensor:
        scale = self._novelty
        return -self._matcher.leading(similarity, similarity.amax(2), scale.slope, scale.offset, 1)[0][:, 0]

    @torch.inference_mode()
    def predict(self, x: Tensor, top: int, memories: int, novelty: bool) -> Predictions:
        """Answer for validated examples x: (n, *input shape)."""
        parts = [self._predict(part, top, memories, novelty) for part in x.split(_CHUNK)]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
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
        z = self.represent(x)  # (n, units)
        similarity = matcher.similarities(z)  # (n, classes, depth)
        best = similarity.amax(2)  # (n, classes)
        top, memories = min(top, matcher.classes), min(memories, matcher.entries)
        majority = self._config.vote == "majority"
        k = min(self._config.neighbours, matcher.entries) if majority else 0
        near, near_class = matcher.nearest(similarity, best, max(k, memories))
        if majority and top <= 1:
            share, order = _winner(near_class[:, :k])
        elif majority:
            votes = F.one_hot(near_class[:, :k], matcher.classes).sum(1)  # (n, classes)
            order = _order(votes, best)[:, :top]
            share = votes.gather(1, order) / k
        else:
            count = max(top, 1 if self._duels is None else LEADING)
            score, order = matcher.leading(similarity, best, self._slope, self._offset, count)
            share = torch.softmax(score / _SHARE_TEMPERATURE, dim=1)
            if self._duels is not None:
                share, order = self._duels.settle(z, share, order)
        distance = _distance(best.gather(1, order))  # (n, at least top)
        answer = {"winner": order[:, 0], "share": share[:, 0], "distance": distance[:, 0]}
        answer |= {"top": order[:, :top], "top_share": share[:, :top], "top_distance": distance[:, :top]}
        answer |= {"memory": near_class[:, :memories], "memory_distance": _distance(near[:, :memories])}
        if novelty:
            answer["novelty"] = self._novelty.calibrate(self._ratios(similarity))
        return {key: value.cpu().numpy() for key, value in answer.items()}


def _distance(similarity: Tensor) -> Tensor:
    return (2.0 - 2.0 * similarity).clamp_(min=0.0)  # rounding may take a cosine past 1


def _sorted(scores: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(scores, dim=1, descending=True)


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
