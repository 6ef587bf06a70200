"""What a learner knows in its learned metric, and how examples become part of it: whole episodes or single ones.

Seconds for an episode, milliseconds for an example, and no gradient anywhere. Everything returns new values: what was
known before stays as it was, for whoever still answers with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharp_engine.config import MetricConfig
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.memory.semantic import SemanticMemory, empty_semantic_memory
from sharp_engine.network.features import FeatureMap
from sharp_engine.prediction.calibration import Calibration, enough, fit_temperature, fit_weight, sample
from sharp_engine.prediction.metric import Coordinates, Metric, Whitening, fit_whitening, whitened_means
from sharp_engine.prediction.metric_predictor import LearnedMetric, voters
from sharp_engine.prediction.vote import VotePredictor

_CHUNK = 2048
"""Examples per product of the scatter."""

_WAITING = 256
"""Most examples that wait, as they are, to be summed up."""

_WAITING_SHARE = 8
"""… and no more than one in this many: while little is known, every example is summed up at once."""

_LEAST_NOISE, _MOST_NOISE = 0.25, 16.0


@dataclass(frozen=True)
class Knowledge:
    """Semantic and episodic memory, and how answers from them are to be read."""

    semantic: SemanticMemory
    episodic: EpisodicMemory
    calibration: Calibration

    @property
    def class_ids(self) -> set[int]:
        """Every class that is known."""
        return set(self.semantic.examples)

    def forget(self, class_id: int) -> Knowledge:
        """Without one class."""
        return replace(self, semantic=self.semantic.forget(class_id), episodic=self.episodic.forget(class_id))


def nothing_known(features: int, dimensions: int, device: torch.device) -> Knowledge:
    """Before the first example."""
    episodic = EpisodicMemory(corrections=torch.zeros(0, features, device=device))
    return Knowledge(empty_semantic_memory(dimensions, device), episodic, Calibration())


class MetricLearner:
    """Adds examples to knowledge. Holds what stays the same over a learner's life."""

    def __init__(self, features: FeatureMap, config: MetricConfig) -> None:
        self._features = features
        self._config = config

    def learn(
        self, known: Knowledge, s: Tensor, y: Tensor, held_out: Tensor, episode: int, generator: torch.Generator
    ) -> tuple[Knowledge, Whitening]:
        """Learn an episode's stable features s (n, features) of classes y; `held_out`: what the network never sees."""
        before = known.semantic.examples
        semantic = known.semantic.folded().learn(self._batches(s, y))
        episodic = known.episodic
        kept_out = torch.zeros(len(y), dtype=torch.bool)
        kept_out[held_out] = True
        most = self._config.representatives
        for class_id in y.unique().tolist():
            members = torch.nonzero((y == class_id) & kept_out).squeeze(1)
            honest = bool(len(members))
            if not honest:  # too few examples to keep any from the network
                members = torch.nonzero(y == class_id).squeeze(1)
                members = members[torch.randperm(len(members), generator=generator)]
            chosen = s[members[:most].to(s.device)]
            earlier = before.get(class_id, 0)
            episodic = episodic.represent(class_id, chosen, episode, honest, earlier, most, generator)
        return self.calibrate(Knowledge(semantic, episodic, known.calibration))

    def teach(
        self,
        known: Knowledge,
        s: Tensor,
        y: Tensor,
        episode: int,
        whitening: Whitening | None,
        vote: VotePredictor | None,
        corrections: Sequence[int] = (),
    ) -> tuple[Knowledge, Whitening, list[int]]:
        """Learn single examples at once; also returns the whitening in force, and which became corrections.

        `corrections`: examples that are kept as such however they are answered.
        """
        before, ids = known.semantic.examples, tuple(y.tolist())
        semantic = known.semantic.teach(self._features(s), ids)
        episodic, most = known.episodic, self._config.representatives
        for row, class_id in enumerate(ids):
            held = next((len(c.features) for c in episodic.classes if c.class_id == class_id), 0)
            if held < most:
                arrived = s[row : row + 1]
                generator = torch.Generator().manual_seed(0)  # nothing is drawn while there is room
                earlier = before.get(class_id, 0)
                episodic = episodic.represent(class_id, arrived, episode, False, earlier, most, generator)
        known = Knowledge(semantic, episodic, known.calibration)
        if len(semantic.taught_ids) > min(_WAITING, int(semantic.counts.sum()) // _WAITING_SHARE):
            known, whitening = self.calibrate(replace(known, semantic=semantic.folded()))
        episodic, corrected = known.episodic, set(corrections)
        valid = _last_words(s, ids)
        while True:
            if corrected:
                kept = sorted(corrected)
                chosen = tuple(ids[row] for row in kept)
                known = replace(known, episodic=episodic.correct(s[kept], chosen, episode, self._config.corrections))
            learned = self.fit(known, whitening, vote)
            whitening = learned.whitening
            place = {class_id: row for row, class_id in enumerate(learned.metric.class_ids)}
            rows = torch.tensor([place[class_id] for class_id in ids], device=s.device)
            answered = (self._answers(learned, known, s, vote) == rows).tolist()
            wrong = {row for row in valid if not answered[row]} - corrected
            if not wrong:
                break
            corrected |= wrong  # one correction may bend away the answer for another example
        return known, learned.whitening, sorted(corrected)

    def fit(self, known: Knowledge, whitening: Whitening | None, vote: VotePredictor | None) -> LearnedMetric:
        """The metric that these memories make."""
        return LearnedMetric.fit(
            known.semantic, known.episodic, self._features, self._config, known.calibration, whitening, vote
        )

    def calibrate(self, known: Knowledge) -> tuple[Knowledge, Whitening]:
        """Fit noise, temperature and novelty on representatives, each left out in turn."""
        whitening = fit_whitening(known.semantic, self._config)
        old = known.calibration
        plain = Calibration(weight=old.weight, fruitless=old.fruitless)
        left_out = self._left_out(known, whitening, 1.0)
        if left_out is None:
            return replace(known, calibration=plain), whitening
        metric, at, rows, _, _ = left_out
        noise = metric.noise_along_axes(at, rows)
        left_out = self._left_out(known, whitening, min(max(noise, _LEAST_NOISE), _MOST_NOISE))
        assert left_out is not None
        metric, at, rows, _, _ = left_out
        scores = metric.scores(at)
        calibration = replace(
            plain,
            noise=metric.noise,
            temperature=fit_temperature(scores, rows),
            references=(-scores.amax(1)).sort().values.cpu(),
            accuracy=float((scores.argmax(1) == rows).float().mean()),
        )
        return replace(known, calibration=calibration), whitening

    def weigh(self, known: Knowledge, whitening: Whitening, vote: VotePredictor) -> Knowledge:
        """Fit the weight of the network's vote, on examples that it never trained on."""
        calibration = known.calibration
        left_out = self._left_out(known, whitening, calibration.noise)
        if left_out is None:
            return known
        metric, at, rows, s, honest = left_out
        if not enough(int(honest.sum())):
            return known
        scores, rows = metric.scores(at)[honest], rows[honest]
        votes = vote.class_scores(s[honest]) @ voters(vote, metric)
        weight = fit_weight(scores, votes, rows)
        fruitless = 0 if weight else calibration.fruitless + 1
        temperature = fit_temperature(scores + weight * votes, rows) if weight else calibration.temperature
        fitted = replace(calibration, weight=weight, fruitless=fruitless, temperature=temperature)
        return replace(known, calibration=fitted)

    def _batches(self, s: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for part, ids in zip(s.split(_CHUNK), y.split(_CHUNK), strict=True):
            yield self._features(part), ids

    def _answers(self, learned: LearnedMetric, known: Knowledge, s: Tensor, vote: VotePredictor | None) -> Tensor:
        """The class that each example is answered with now: (n,)."""
        v = learned.whitening(self._features(s))
        scores = learned.metric.scores(learned.metric.coordinates(v))
        scores = learned.corrections.bend(scores, v - learned.metric.centre)
        if vote is not None and known.calibration.weight:
            scores = scores + known.calibration.weight * (vote.class_scores(s) @ voters(vote, learned.metric))
        return scores.argmax(1)

    def _left_out(
        self, known: Knowledge, whitening: Whitening, noise: float
    ) -> tuple[Metric, Coordinates, Tensor, Tensor, Tensor] | None:
        """The metric, and representatives in it that it has not seen: coordinates, classes, features, held out."""
        classes = known.episodic.classes
        if len(known.semantic.class_ids) < 2 or not classes:
            return None
        metric = Metric(whitened_means(known.semantic, whitening), self._config.floor, noise)
        place = {class_id: row for row, class_id in enumerate(metric.class_ids)}
        every = torch.tensor([place[c.class_id] for c in classes for _ in c.features])
        chosen = sample(len(every))
        s = torch.cat([c.features for c in classes])[chosen.to(metric.centre.device)].float()
        rows = every[chosen].to(s.device)
        honest = torch.cat([c.held_out for c in classes])[chosen].to(s.device)
        at = metric.coordinates(whitening(self._features(s)))
        at, valid = metric.left_out(at, rows, whitening.leverage)
        if not enough(int(valid.sum())):
            return None
        return metric, Coordinates(at.z[valid], at.rest[valid]), rows[valid], s[valid], honest[valid]


def _last_words(s: Tensor, ids: tuple[int, ...]) -> list[int]:
    """Rows that no later one contradicts, with the same features but another class."""
    places = [row.numpy().tobytes() for row in s.cpu()]
    last = dict(zip(places, ids, strict=True))
    return [row for row, (place, class_id) in enumerate(zip(places, ids, strict=True)) if last[place] == class_id]
