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

from sharp_engine.compact import needed_subnetwork
from sharp_engine.config import PredictionConfig
from sharp_engine.errors import NothingLearnedError
from sharp_engine.front import Front
from sharp_engine.labels import Label, Labels
from sharp_engine.ltm import ClassMemory, LongTermMemory
from sharp_engine.network import Network
from sharp_engine.novelty import NEIGHBOURS, NoveltyScale

_CHUNK = 1024
"""Examples per pass: bounds the memory of a prediction."""

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


class Matcher:
    """Compares representations with every memory. The memories stand in a grid: classes × entries, padded."""

    def __init__(self, memories: tuple[ClassMemory, ...], units: Tensor) -> None:
        """`units`: indices, among all output units, of those that representations will have."""
        device = units.device
        self.counts = torch.tensor([len(memory.vectors) for memory in memories], device=device)  # (classes,)
        self.depth = int(self.counts.max())
        grid = torch.zeros(len(memories), self.depth, len(units), device=device)
        masks: dict[bytes, int] = {}
        group = []
        for row, memory in enumerate(memories):
            mask = memory.mask[units]  # (units,)
            grid[row, : len(memory.vectors)][:, mask] = memory.vectors
            group.append(masks.setdefault(mask.cpu().numpy().tobytes(), len(masks)))
        self._group = torch.tensor(group, device=device).repeat_interleave(self.depth)  # (classes · depth,)
        flat = [np.frombuffer(key, dtype=bool) for key in masks]
        self._masks = torch.from_numpy(np.stack(flat, axis=1)).float().to(device)  # (units, groups)
        self._memories = grid.flatten(0, 1).T.contiguous()  # (units, classes · depth)
        self._norms = grid.flatten(0, 1).square().sum(1).round()  # (classes · depth,) 1, or 0 of a zero vector
        absent = torch.arange(self.depth, device=device)[None, :] >= self.counts[:, None]
        self.padding = absent.view(-1) if bool(absent.any()) else None  # (classes · depth,)

    def distances(self, z: Tensor) -> Tensor:
        """Squared distances to all memories, infinite where the grid is padded: (n, classes · depth)."""
        norms = (z * z) @ self._masks  # (n, groups) squared lengths over each mask
        scale = torch.where(norms > 0, norms.clamp(min=1e-30).rsqrt(), 0.0)
        cosine = (z @ self._memories).mul_(scale[:, self._group])  # (n, classes · depth)
        constant = (norms > 0).float()[:, self._group].add_(self._norms)  # ‖φ(z)‖² + ‖φ(c)‖², nearly always 2
        distance = constant.sub_(cosine, alpha=2.0).clamp_(min=0.0)
        return distance if self.padding is None else distance.masked_fill_(self.padding, torch.inf)

    def class_distances(self, distance: Tensor, neighbours: int = NEIGHBOURS) -> tuple[Tensor, Tensor]:
        """Per class: mean of the nearest few distances, and the nearest one: (n, classes) each."""
        grid = distance.view(len(distance), -1, self.depth)  # (n, classes, depth)
        nearest = grid.topk(min(neighbours, self.depth), dim=2, largest=False, sorted=True).values
        if self.padding is None:
            return nearest.mean(2), nearest[:, :, 0]
        total = torch.where(nearest.isinf(), 0.0, nearest).sum(2)
        return total / self.counts.clamp(max=nearest.shape[2]), nearest[:, :, 0]


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
        self._floor = torch.tensor([memory.floor for memory in ltm.classes], device=device)
        self._ceiling = torch.tensor([memory.ceiling for memory in ltm.classes], device=device)
        self._novelty = NoveltyScale(ltm.classes, device)

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
        parts = [self._matcher.distances(self.represent(part)) for part in x.split(_CHUNK)]
        return torch.cat([self._novelty.ratios(self._matcher.class_distances(part)[0]) for part in parts])

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
        distance = self._matcher.distances(self.represent(x))  # (n, classes · depth)
        entries = int(self._matcher.counts.sum())
        top, memories = min(top, len(self._labels)), min(memories, entries)
        depth = self._matcher.depth
        majority = self._config.vote == "majority"
        k = min(self._config.neighbours, entries) if majority else 0
        near, index = distance.topk(max(k, memories), dim=1, largest=False)  # (n, k) nearest first
        near_class = index // depth
        answer: dict[str, Tensor] = {"memory": near_class[:, :memories], "memory_distance": near[:, :memories]}
        if novelty or not majority or top > 1:
            mean, nearest = self._matcher.class_distances(distance)  # (n, classes) each
        if novelty:
            answer["novelty"] = self._novelty.calibrate(self._novelty.ratios(mean))
        if majority and top <= 1:
            share, winner, best = _winner(near[:, :k], near_class[:, :k])
            answer |= {"winner": winner, "share": share, "distance": best}
            answer |= {
                "top": winner[:, None][:, :top],
                "top_share": share[:, None][:, :top],
                "top_distance": best[:, None][:, :top],
            }
        else:
            if majority:
                share = F.one_hot(near_class[:, :k], len(self._labels)).sum(1) / k  # (n, classes)
                order = _order(share, nearest)[:, : max(top, 1)]
            else:
                score = ((1.0 - mean / 2.0) - self._floor) / (self._ceiling - self._floor)  # (n, classes)
                share = torch.softmax(score / _SHARE_TEMPERATURE, dim=1)
                order = score.topk(max(top, 1), dim=1).indices
            shares, bests = share.gather(1, order), nearest.gather(1, order)
            answer |= {"winner": order[:, 0], "share": shares[:, 0], "distance": bests[:, 0]}
            answer |= {"top": order[:, :top], "top_share": shares[:, :top], "top_distance": bests[:, :top]}
        return {key: value.cpu().numpy() for key, value in answer.items()}


def _winner(near: Tensor, near_class: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share, class and least distance of the vote's winner; a tie goes to the class with the nearest entry."""
    k = near_class.shape[1]
    votes = (near_class[:, :, None] == near_class[:, None, :]).sum(2)  # (n, k) votes of each neighbour's class
    position = torch.arange(k, device=near.device)
    best = (votes * k - position).argmax(1, keepdim=True)  # most votes, then nearest; (n, 1)
    return votes.gather(1, best)[:, 0] / k, near_class.gather(1, best)[:, 0], near.gather(1, best)[:, 0]


def _order(share: Tensor, nearest: Tensor) -> Tensor:
    """Classes by share, then by their nearest entry: (n, classes)."""
    by_distance = nearest.argsort(dim=1, stable=True)
    by_share = share.gather(1, by_distance).argsort(dim=1, descending=True, stable=True)
    return by_distance.gather(1, by_share)
