"""Everything that scores depend on, made from the memories: whoever has the same memories has the same bits.

Most of it changes only when examples are summed up: the whitening, and the frame in which classes have their places.
An example that is taught moves one place, or brings an axis, and may become a correction; the rest is taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharp_engine.config import MetricConfig
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.network.features import FeatureMap
from sharp_engine.prediction.calibration import Calibration
from sharp_engine.prediction.corrections import Corrections, Nearness, fit_corrections
from sharp_engine.prediction.metric import Frame, Metric, Whitening
from sharp_engine.prediction.rows import MappedRows, map_rows
from sharp_engine.prediction.vote import VotePredictor


@dataclass(frozen=True)
class Projection:
    """From φ straight to places in a frame, without whitening all of it."""

    frame: Frame
    matrix: Tensor
    """(dimensions, axes)"""
    offset: Tensor
    """(axes,)"""

    @classmethod
    def into(cls, frame: Frame, whitening: Whitening) -> Projection:
        """All of the frame's axes."""
        return cls(frame, whitening.project(frame.axes), -(frame.centre @ frame.axes))

    def widened(self, whitening: Whitening, v: Tensor, counts: Tensor) -> Projection:
        """With axes for new classes: whitened means (classes, dimensions), examples of each."""
        frame = self.frame.widened(v, counts)
        more = frame.axes[:, len(self.offset) :]
        matrix = torch.cat((self.matrix, whitening.project(more)), dim=1)
        return Projection(frame, matrix, torch.cat((self.offset, -(frame.centre @ more))))

    def __call__(self, phi: Tensor) -> Tensor:
        """Places of examples φ (n, dimensions): (n, axes)."""
        return torch.addmm(self.offset, phi, self.matrix)


@dataclass(frozen=True)
class _Reusable:
    """What the next metric in the same frame need not make again."""

    summed: Projection
    new_means: MappedRows | None
    """Whitened means of classes that are new since examples were last summed up."""
    new_counts: Tensor
    """(new classes,)"""
    corrections: MappedRows | None
    """Corrections, whitened and in the frame without new axes."""
    nearness: Nearness | None


@dataclass(frozen=True)
class LearnedMetric:
    """What scores φ."""

    whitening: Whitening
    metric: Metric
    bonuses: Tensor
    """(classes,): what their scores gain for having few examples"""
    projection: Projection
    corrections: Corrections
    reusable: _Reusable | None
    """Absent where it only answers: the next one is then made from the beginning, to the same bits."""

    @classmethod
    def fit(
        cls,
        semantic: SemanticMemory,
        episodic: EpisodicMemory,
        features: FeatureMap,
        config: MetricConfig,
        calibration: Calibration,
        whitening: Whitening,
        summed: Projection,
        bonus: Callable[[Metric], float] = lambda metric: 0.0,
        vote: VotePredictor | None = None,
        before: LearnedMetric | None = None,
    ) -> LearnedMetric:
        """From both memories, the whitening that was made of their sums, and the projection into its frame.

        `bonus`: what a class gains for having few examples. `vote`: the network's, which corrections must outvote.
        `before`: a metric of earlier memories; what has not changed since is taken from it, to the same bits.
        """
        old = before.reusable if before is not None else None
        if old is not None and old.summed is not summed:
            old = None
        current = semantic.current
        projection, new_means, new_counts = summed, None, current.counts[len(semantic.class_ids) :]
        if len(new_counts):
            new_means = map_rows(whitening, current.means[-len(new_counts) :], old.new_means if old else None)
            same = old is not None and torch.equal(old.new_counts, new_counts) and new_means.same(old.new_means)
            if before is not None and same:
                projection = before.projection
            else:
                projection = summed.widened(whitening, new_means.results, new_counts)
        places = projection(current.means)
        metric = Metric(projection.frame, current.class_ids, current.counts.to(torch.float64), places)
        bonuses = metric.bonuses(bonus(metric))
        place = {class_id: row for row, class_id in enumerate(metric.class_ids)}
        device = places.device
        own = torch.tensor([place[class_id] for class_id in episodic.correction_ids], dtype=torch.int64, device=device)
        if not len(own):
            none = Corrections.none(metric.dimensions, device)
            reusable = _Reusable(summed, new_means, new_counts, None, None)
            return cls(whitening, metric, bonuses, projection, none, reusable)

        def locate(s: Tensor) -> Tensor:
            v = whitening(features(s))
            return torch.cat((v, summed.frame.places(v)), dim=1)

        located = map_rows(locate, episodic.corrections, old.corrections if old else None)
        v, z = located.results.split((metric.dimensions, len(summed.offset)), dim=1)
        around = v - projection.frame.centre
        z = torch.cat((z, around @ projection.frame.axes[:, z.shape[1] :]), dim=1)
        scores = metric.scores(z) + bonuses
        if vote is not None and calibration.weight:
            scores = scores + calibration.weight * (vote.class_scores(episodic.corrections) @ voters(vote, metric))
        nearness = Nearness.of(around, old.nearness if old else None)
        corrections = fit_corrections(nearness, own, scores, config.kernel_width, calibration.temperature)
        return cls(
            whitening,
            metric,
            bonuses,
            projection,
            corrections,
            _Reusable(summed, new_means, new_counts, located, nearness),
        )

    def for_serving(self) -> LearnedMetric:
        """The same scores, and nothing for the next metric."""
        return replace(self, reusable=None)

    def along_axes(self, phi: Tensor) -> Tensor:
        """Coordinates of examples φ (n, dimensions) along the axes: (n, axes)."""
        return self.projection(phi)

    def scores(self, z: Tensor) -> Tensor:
        """Scores by coordinates along the axes, before corrections: (n, classes)."""
        return self.metric.scores(z) + self.bonuses

    def around(self, phi: Tensor) -> Tensor:
        """Whitened examples around the centre: (n, dimensions). The costly part, for what needs all directions."""
        return self.whitening(phi) - self.metric.frame.centre


def voters(vote: VotePredictor, metric: Metric) -> Tensor:
    """(classes of the vote, classes of the metric): which is which."""
    place = {class_id: row for row, class_id in enumerate(metric.class_ids)}
    matrix = torch.zeros(len(vote.class_ids), len(place), device=metric.places.device)
    for row, class_id in enumerate(vote.class_ids):
        if class_id in place:
            matrix[row, place[class_id]] = 1.0
    return matrix
