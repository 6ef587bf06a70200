"""Answers in the learned metric: which class mean is nearest, bent by corrections, joined by the network's vote.

Immutable, like every predictor: what is learned or taught gives a new one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.errors import NothingLearnedError
from sharp_engine.labels import Labels
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.network.features import FeatureMap
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.prediction.answers import CHUNK, Predictor, arranged, fetched
from sharp_engine.prediction.calibration import Calibration
from sharp_engine.prediction.learned_metric import LearnedMetric, voters
from sharp_engine.prediction.vote import VotePredictor

_NEARER = 1.0 - 1e-6


class MetricPredictor(Predictor):
    """Answers from semantic and episodic memory."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        features: FeatureMap,
        learned: LearnedMetric,
        episodic: EpisodicMemory,
        calibration: Calibration,
        labels: Labels,
        episodes: int,
        vote: VotePredictor | None,
    ) -> None:
        """`vote`: the network's, where it has a weight."""
        if not learned.metric.class_ids:
            raise NothingLearnedError("nothing was learned yet: there is no class to name")
        super().__init__([labels.label(class_id) for class_id in learned.metric.class_ids])
        self.episodes = episodes
        self.learned = learned
        self.calibration = calibration
        self._preprocessor = preprocessor
        self._features = features
        self._episodic = episodic
        self._vote = vote if calibration.weight else None
        if self._vote is not None:
            self._voters = voters(self._vote, learned.metric)
        self._singles: _Singles | None = None

    def for_serving(self) -> MetricPredictor:
        """Without what the next metric is made from."""
        served = copy.copy(self)
        served.learned = self.learned.for_serving()
        return served

    @torch.inference_mode()
    def scores(self, x: Tensor) -> Tensor:
        """Scores of classes for examples x (n, *input shape), in the order of `classes`: (n, classes)."""
        return torch.cat([self._score(self._preprocessor(part), False).scores for part in x.split(CHUNK)])

    def _score(self, s: Tensor, whole: bool) -> _Scored:
        """From stable features s; examples `around` the centre only for corrections, or who asks for the `whole`."""
        phi, learned = self._features(s), self.learned
        z = learned.along_axes(phi)
        plain = learned.metric.scores(z)
        bent = bool(len(learned.corrections.margins))
        around = learned.around(phi) if bent or whole else None
        if bent and around is not None:
            plain = learned.corrections.bend(plain, around)
        scores = plain + learned.bonuses
        if self._vote is not None:
            assert self.calibration.weight is not None
            scores = scores + self.calibration.weight * (self._vote.class_scores(s) @ self._voters)
        return _Scored(around, z, plain, scores)

    def _answer(self, x: Tensor, top: int, memories: int, novelty: bool) -> dict[str, NDArray[Any]]:
        # Few calls of torch, each of which lets other threads have the interpreter: what is small is done in arrays.
        metric = self.learned.metric
        scored = self._score(self._preprocessor(x), novelty or memories > 0)
        top = min(top, len(metric.class_ids))
        best = scored.scores.topk(max(top, 1), dim=1)  # (n, at least top)
        found = {
            "classes": best.indices,
            "shares": self.calibration.shares(scored.scores).gather(1, best.indices),
            "scores": best.values,
            "strangeness": metric.strangeness(scored.z),
        }
        if scored.around is not None and memories:
            distance = metric.distances(found["strangeness"], scored.scores)  # (n, classes)
            found |= self._nearest(scored.around, distance, best.indices[:, :1], memories)
        if novelty:
            assert scored.around is not None
            alike = (scored.plain - metric.evening).amax(1)  # neither evening nor bonuses make anything less novel
            rest = metric.rest(scored.around, scored.z)
            found["novelty"] = self.calibration.novelty(metric.familiarity(alike, rest))
        arrays = fetched(found)
        arrays["distances"] = metric.distances(arrays.pop("strangeness"), arrays.pop("scores"))
        answer = arranged(arrays, top)
        if self._singles is not None and memories:
            return answer | {"memory_episode": self._singles.episodes.numpy()[answer.pop("memory_place")]}
        none = np.zeros((len(x), 0), dtype=np.float32)
        return answer | {
            "memory": none.astype(np.int64),
            "memory_episode": none.astype(np.int64),
            "memory_distance": none,
        }

    def _nearest(self, around: Tensor, distance: Tensor, winner: Tensor, memories: int) -> dict[str, Tensor]:
        """The nearest memories, class means and single ones: their classes, distances, and places among all.

        A single memory lies at half the squared distance between it and the example, as both scatter about their
        class; it is never nearer than its class, so that the nearest memory is one of the class that is answered.
        """
        if self._singles is None:
            self._singles = _Singles.of(self._episodic, self.learned, self._features, self.episodes)
        singles = self._singles
        scale = 2.0 * self.learned.metric.noise * self.learned.metric.dimensions
        apart = torch.cdist(around, singles.around).square_() / scale  # (n, singles)
        apart = torch.maximum(apart, distance[:, singles.rows])
        distance = distance.scatter(1, winner, distance.gather(1, winner) * _NEARER)  # where rounding makes them equal
        every = torch.cat((distance, apart), dim=1)
        rows = torch.cat((torch.arange(distance.shape[1], device=distance.device), singles.rows))
        near, index = every.topk(min(memories, every.shape[1]), dim=1, largest=False)
        return {"memory": rows[index], "memory_distance": near, "memory_place": index}


@dataclass(frozen=True)
class _Scored:
    """Examples, and how classes do."""

    around: Tensor | None
    """(n, dimensions), whitened around the centre"""
    z: Tensor
    """(n, axes): coordinates"""
    plain: Tensor
    """(n, classes): scores without bonuses and the network's vote"""
    scores: Tensor
    """(n, classes)"""


@dataclass(frozen=True)
class _Singles:
    """All single memories, whitened; made when somebody first asks for the nearest."""

    around: Tensor
    """(singles, dimensions) about the metric's centre"""
    rows: Tensor
    """(singles,): the class of each, by its place in the metric"""
    episodes: Tensor
    """Of class means first (their class's newest), then of every single memory; on the CPU."""

    @classmethod
    def of(cls, memory: EpisodicMemory, learned: LearnedMetric, features: FeatureMap, episode: int) -> _Singles:
        device = learned.metric.places.device
        place = {class_id: row for row, class_id in enumerate(learned.metric.class_ids)}
        s = [c.features.float() for c in memory.classes] + [memory.corrections.to(device)]
        rows = [place[c.class_id] for c in memory.classes for _ in c.features]
        rows += [place[class_id] for class_id in memory.correction_ids]
        newest = torch.full((len(place),), episode, dtype=torch.int64)
        for c in memory.classes:
            newest[place[c.class_id]] = c.episodes.max()
        episodes = [newest, *(c.episodes for c in memory.classes), torch.tensor(memory.correction_episodes).long()]
        around = [learned.around(features(part)) for part in s if len(part)]
        nothing = torch.zeros(0, learned.metric.dimensions, device=device)
        return cls(
            torch.cat((nothing, *around)), torch.tensor(rows, dtype=torch.int64, device=device), torch.cat(episodes)
        )
