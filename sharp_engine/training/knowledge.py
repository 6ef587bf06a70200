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


@dataclass(frozen=True)
class Taught:
    """What teaching single examples came to."""

    knowledge: Knowledge
    whitening: Whitening
    """The one in force."""
    kept: tuple[int, ...]
    """Which of the examples are kept as corrections."""
    wrong: int
    """How many of them were answered wrong."""


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
    ) -> Taught:
        """Learn single examples at once.

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
        learned = self.fit(known, whitening, vote)
        place = {class_id: row for row, class_id in enumerate(learned.metric.class_ids)}
        rows = torch.tensor([place[class_id] for class_id in ids], device=s.device)
        # Kept is also what is right only thanks to other corrections, or by so little that the next may change it.
        plain = self._scores(learned, known, s, vote, bent=False)
        others = plain.scatter(1, rows[:, None], -torch.inf).amax(1)
        unsure = plain.gather(1, rows[:, None]).squeeze(1) - others < 2.0 * known.calibration.temperature
        episodic, valid = known.episodic, set(_last_words(s, ids))
        kept = set(corrections) | (set(torch.nonzero(unsure).squeeze(1).tolist()) & valid)
        wrong = self._wrong(learned, known, s, rows, vote)
        report, wrong = len(wrong), wrong & valid - kept
        while True:
            kept |= wrong
            if kept:
                chosen = tuple(ids[row] for row in sorted(kept))
                episodic_now = episodic.correct(s[sorted(kept)], chosen, episode, self._config.corrections)
                known = replace(known, episodic=episodic_now)
            if valid <= kept or not kept:
                break
            # A correction may have bent away the answer for another example of the lesson.
            wrong = self._wrong(self.fit(known, learned.whitening, vote), known, s, rows, vote) & valid - kept
            if not wrong:
                break
        return Taught(known, learned.whitening, tuple(sorted(kept)), report)

    def fit(self, known: Knowledge, whitening: Whitening | None, vote: VotePredictor | None) -> LearnedMetric:
        """The metric that these memories make."""
        return LearnedMetric.fit(
            known.semantic, known.episodic, self._features, self._config, known.calibration, whitening, vote
        )

    def calibrate(self, known: Knowledge) -> tuple[Knowledge, Whitening]:
        """Fit noise, temperature and novelty on representatives, each left out in turn."""
        whitening = fit_whitening(known.semantic, self._features.stable, self._config)
        old = known.calibration
        plain = Calibration(weight=old.weight, fruitless=old.fruitless)
        single = self._single_memories(known, whitening)
        if single is None:
            return replace(known, calibration=plain), whitening
        means = whitened_means(known.semantic, whitening)
        metric = Metric(means, self._config.floor, 1.0)
        noise = metric.noise_along_axes(*_left_out(metric, whitening, single))
        metric = Metric(means, self._config.floor, min(max(noise, _LEAST_NOISE), _MOST_NOISE))
        at, rows = _left_out(metric, whitening, single)
        scores = metric.scores(at.z)
        calibration = replace(
            plain,
            noise=metric.noise,
            temperature=fit_temperature(scores, rows),
            references=(-scores.amax(1) - metric.likeness(at.rest)).sort().values.cpu(),
            accuracy=float((scores.argmax(1) == rows).float().mean()),
        )
        return replace(known, calibration=calibration), whitening

    def weigh(self, known: Knowledge, whitening: Whitening, vote: VotePredictor) -> Knowledge:
        """Fit the weight of the network's vote, on examples that it never trained on."""
        calibration = known.calibration
        single = self._single_memories(known, whitening)
        if single is None or not enough(int(single.held_out.sum())):
            return known
        single = single.take(single.held_out)
        metric = Metric(whitened_means(known.semantic, whitening), self._config.floor, calibration.noise)
        at, rows = _left_out(metric, whitening, single)
        scores = metric.scores(at.z)
        votes = vote.class_scores(single.s) @ voters(vote, metric)
        weight = fit_weight(scores, votes, rows)
        fruitless = 0 if weight else calibration.fruitless + 1
        temperature = fit_temperature(scores + weight * votes, rows) if weight else calibration.temperature
        fitted = replace(calibration, weight=weight, fruitless=fruitless, temperature=temperature)
        return replace(known, calibration=fitted)

    def _batches(self, s: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for part, ids in zip(s.split(_CHUNK), y.split(_CHUNK), strict=True):
            yield self._features(part), ids

    def _wrong(
        self, learned: LearnedMetric, known: Knowledge, s: Tensor, rows: Tensor, vote: VotePredictor | None
    ) -> set[int]:
        """Which examples are answered with another class than theirs."""
        answers = self._scores(learned, known, s, vote, bent=True).argmax(1)
        return set(torch.nonzero(answers != rows).squeeze(1).tolist())

    def _scores(
        self, learned: LearnedMetric, known: Knowledge, s: Tensor, vote: VotePredictor | None, bent: bool
    ) -> Tensor:
        """Scores as they are now, with or without what corrections add: (n, classes)."""
        phi = self._features(s)
        scores = learned.metric.scores(learned.along_axes(phi))
        if bent:
            scores = learned.corrections.bend(scores, learned.around(phi))
        if vote is not None and known.calibration.weight:
            scores = scores + known.calibration.weight * (vote.class_scores(s) @ voters(vote, learned.metric))
        return scores

    def _single_memories(self, known: Knowledge, whitening: Whitening) -> _SingleMemories | None:
        """Representatives that can be left out of what is known, or nothing where there are too few of them."""
        classes, counts = known.episodic.classes, known.semantic.counts.tolist()
        place = {class_id: row for row, class_id in enumerate(known.semantic.class_ids)}
        classes = tuple(c for c in classes if counts[place[c.class_id]] >= 2)
        every = torch.tensor([place[c.class_id] for c in classes for _ in c.features])
        if len(place) < 2 or not enough(len(every)):
            return None
        chosen = sample(len(every))
        s = torch.cat([c.features for c in classes])[chosen.to(known.semantic.means.device)].float()
        held_out = torch.cat([c.held_out for c in classes])[chosen].to(s.device)
        return _SingleMemories(s, whitening(self._features(s)), every[chosen].to(s.device), held_out)


@dataclass(frozen=True)
class _SingleMemories:
    """Representatives, for calibration."""

    s: Tensor
    """(n, features)"""
    v: Tensor
    """(n, dimensions), whitened"""
    rows: Tensor
    """(n,): the class of each, by its place in the metric"""
    held_out: Tensor
    """(n,) bool: whether the network never trained on it"""

    def take(self, chosen: Tensor) -> _SingleMemories:
        """Some of them."""
        return _SingleMemories(self.s[chosen], self.v[chosen], self.rows[chosen], self.held_out[chosen])


def _left_out(metric: Metric, whitening: Whitening, single: _SingleMemories) -> tuple[Coordinates, Tensor]:
    """Coordinates of single memories as if they had never been learned, and their classes."""
    return metric.left_out(metric.coordinates(single.v), single.rows, whitening.leverage), single.rows


def _last_words(s: Tensor, ids: tuple[int, ...]) -> list[int]:
    """Rows that no later one contradicts, with the same features but another class."""
    places = [row.numpy().tobytes() for row in s.cpu()]
    last = dict(zip(places, ids, strict=True))
    return [row for row, (place, class_id) in enumerate(zip(places, ids, strict=True)) if last[place] == class_id]
