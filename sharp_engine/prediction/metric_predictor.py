"""Answers in the learned metric: which class mean is nearest, bent by corrections, joined by the network's vote.

Immutable, like every predictor: what is learned or taught gives a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.config import MetricConfig
from sharp_engine.errors import NothingLearnedError
from sharp_engine.labels import Labels
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.network.features import FeatureMap
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.prediction.answers import CHUNK, Predictor
from sharp_engine.prediction.calibration import Calibration
from sharp_engine.prediction.corrections import Corrections, fit_corrections
from sharp_engine.prediction.metric import Means, Metric, Whitening, whitened_means
from sharp_engine.prediction.rows import MappedRows, map_rows
from sharp_engine.prediction.vote import VotePredictor

_NEARER = 1.0 - 1e-6


@dataclass(frozen=True)
class LearnedMetric:
    """Everything that scores depend on, made from the memories; whoever has the same memories has the same bits."""

    whitening: Whitening
    means: Means
    metric: Metric
    bonuses: Tensor
    """(classes,): what their scores gain for having few examples"""
    projection: Tensor
    """(dimensions, axes): from φ to coordinates along the axes, without whitening all of it"""
    offset: Tensor
    """(axes,)"""
    corrections: Corrections
    whitened_means: MappedRows
    whitened_corrections: MappedRows | None
    """Whitened rows, for the next metric with the same whitening: most of them will not have changed."""

    @classmethod
    def fit(
        cls,
        semantic: SemanticMemory,
        episodic: EpisodicMemory,
        features: FeatureMap,
        config: MetricConfig,
        calibration: Calibration,
        whitening: Whitening,
        bonus: Callable[[Metric], float] = lambda metric: 0.0,
        vote: VotePredictor | None = None,
        before: LearnedMetric | None = None,
    ) -> LearnedMetric:
        """From both memories, and the whitening that was made of their sums.

        `bonus`: what a class gains for having few examples. `vote`: the network's, which corrections must outvote.
        `before`: a metric of earlier memories; what has not changed since is taken from it, to the same bits.
        """
        if before is not None and before.whitening is not whitening:
            before = None
        rows = map_rows(whitening, semantic.current.means, before.whitened_means if before else None)
        means = whitened_means(semantic, whitening, rows.results)
        if before is not None and before.metric.noise == calibration.noise and before.means.same(means):
            metric, projection, offset = before.metric, before.projection, before.offset
        else:
            metric = Metric(means, config.floor, calibration.noise)
            projection, offset = whitening.project(metric.axes), -(metric.centre @ metric.axes)
        v, corrected = rows.results[:0], None
        if episodic.correction_ids:
            old = before.whitened_corrections if before else None
            corrected = map_rows(lambda s: whitening(features(s)), episodic.corrections, old)
            v = corrected.results
        place = {class_id: row for row, class_id in enumerate(metric.class_ids)}
        own = torch.tensor(
            [place[class_id] for class_id in episodic.correction_ids], dtype=torch.int64, device=metric.centre.device
        )
        bonuses = metric.bonuses(bonus(metric))
        scores = metric.scores(metric.coordinates(v).z) + bonuses
        if vote is not None and calibration.weight and len(v):
            scores = scores + calibration.weight * (vote.class_scores(episodic.corrections) @ voters(vote, metric))
        corrections = fit_corrections(v - metric.centre, own, scores, config.kernel_width, calibration.temperature)
        return cls(whitening, means, metric, bonuses, projection, offset, corrections, rows, corrected)

    def along_axes(self, phi: Tensor) -> Tensor:
        """Coordinates of examples φ (n, dimensions) along the axes: (n, axes)."""
        return torch.addmm(self.offset, phi, self.projection)

    def scores(self, z: Tensor) -> Tensor:
        """Scores by coordinates along the axes, before corrections: (n, classes)."""
        return self.metric.scores(z) + self.bonuses

    def around(self, phi: Tensor) -> Tensor:
        """Whitened examples around the centre: (n, dimensions). The costly part, for what needs all directions."""
        return self.whitening(phi) - self.metric.centre


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

    @torch.inference_mode()
    def scores(self, x: Tensor) -> Tensor:
        """Scores of classes for examples x (n, *input shape), in the order of `classes`: (n, classes)."""
        return torch.cat([self._score(self._preprocessor(part), False)[2] for part in x.split(CHUNK)])

    def _score(self, s: Tensor, whole: bool) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """From stable features s: examples whitened around the centre, coordinates along the axes, and scores; last
        the best score before the network votes.

        Only corrections need the first, and whoever asks for the `whole`.
        """
        phi, learned = self._features(s), self.learned
        z = learned.along_axes(phi)
        scores = learned.scores(z)
        bent = bool(len(learned.corrections.margins))
        around = learned.around(phi) if bent or whole else None
        if bent and around is not None:
            scores = learned.corrections.bend(scores, around)
        best = (scores - learned.bonuses).amax(1)  # few examples make nothing less novel
        if self._vote is not None:
            assert self.calibration.weight is not None
            scores = scores + self.calibration.weight * (self._vote.class_scores(s) @ self._voters)
        return around, z, scores, best

    def _answer(self, x: Tensor, top: int, memories: int, novelty: bool) -> dict[str, NDArray[Any]]:
        metric = self.learned.metric
        around, z, scores, best = self._score(self._preprocessor(x), novelty or memories > 0)
        top = min(top, len(metric.class_ids))
        order = scores.topk(max(top, 1), dim=1).indices  # (n, at least top)
        distance = metric.distances(z, scores)  # (n, classes)
        shares = self.calibration.shares(scores).gather(1, order).cpu().numpy()
        distances = distance.gather(1, order).cpu().numpy()
        classes = order.cpu().numpy()
        answer = {"winner": classes[:, 0], "share": shares[:, 0], "distance": distances[:, 0]}
        answer |= {"top": classes[:, :top], "top_share": shares[:, :top], "top_distance": distances[:, :top]}
        answer |= self._nearest(around, distance, order[:, :1], memories)
        if novelty:
            assert around is not None
            best = best + metric.likeness(metric.rest(around, z))
            answer |= {"novelty": self.calibration.novelty(best).cpu().numpy()}
        return answer

    def _nearest(
        self, around: Tensor | None, distance: Tensor, winner: Tensor, memories: int
    ) -> dict[str, NDArray[Any]]:
        """The nearest memories: class means, and single ones.

        A single memory lies at half the squared distance between it and the example, as both scatter about their
        class; it is never nearer than its class, so that the nearest memory is one of the class that is answered.
        """
        if not memories or around is None:
            none = np.zeros((len(distance), 0), dtype=np.float32)
            return {"memory": none.astype(np.int64), "memory_episode": none.astype(np.int64), "memory_distance": none}
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
        return {
            "memory": rows[index].cpu().numpy(),
            "memory_episode": singles.episodes[index.cpu()].numpy(),
            "memory_distance": near.cpu().numpy(),
        }


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
        device = learned.metric.centre.device
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


def voters(vote: VotePredictor, metric: Metric) -> Tensor:
    """(classes of the vote, classes of the metric): which is which."""
    place = {class_id: row for row, class_id in enumerate(metric.class_ids)}
    matrix = torch.zeros(len(vote.class_ids), len(place), device=metric.centre.device)
    for row, class_id in enumerate(vote.class_ids):
        if class_id in place:
            matrix[row, place[class_id]] = 1.0
    return matrix
