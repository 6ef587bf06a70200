"""What a learner knows in its learned metric, and how examples become part of it: whole episodes or single ones.

Seconds for an episode, milliseconds for an example, and no gradient anywhere. Everything returns new values: what was
known before stays as it was, for whoever still answers with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sharp_engine.config import MetricConfig
from sharp_engine.memory.episodic import EpisodicMemory, Representatives
from sharp_engine.memory.semantic import SemanticMemory, empty_semantic_memory
from sharp_engine.network.features import FeatureMap
from sharp_engine.prediction.calibration import Calibration, enough, fit_sureness, fit_temperature, fit_weight
from sharp_engine.prediction.learned_metric import LearnedMetric, Projection, voters
from sharp_engine.prediction.metric import Means, Metric, Whitening, fit_whitening, whitened_means
from sharp_engine.prediction.quality import measure
from sharp_engine.prediction.vote import VotePredictor
from sharp_engine.training.few_bonus import MOST_JUDGES, WELL_KNOWN, Judges
from sharp_engine.training.single_memories import SingleMemories

_CHUNK = 1024
"""Examples per product of the scatter."""

_WAITING = 256
"""Taught examples wait, as they are, to be summed up: so many, or as many as there are dimensions (they then take as
much room as the scatter)."""

_WAITING_SHARE = 8
"""… and no more than one in this many of all: while little is known, every example is summed up at once. When they are
is a matter of counts alone, so that a flood of examples costs a new metric only now and then."""

_WAITING_OF_CLASS = 16
"""… and of one class no more than so many, or than were summed up of it: how a new class scatters is worth knowing."""

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
        quality = self.calibration.quality
        calibration = replace(self.calibration, quality=quality.without(class_id) if quality else None)
        return Knowledge(self.semantic.forget(class_id), self.episodic.forget(class_id), calibration)

    def merge(self, source: int, target: int, representatives: int) -> Knowledge:
        """As if all examples of one class had been of another; to be calibrated anew."""
        examples = self.semantic.examples
        shares = examples.get(source, 0), examples.get(target, 0)
        episodic = self.episodic.merge(source, target, shares, representatives)
        return replace(self, semantic=self.semantic.folded().merge(source, target), episodic=episodic)


def nothing_known(features: int, dimensions: int, device: torch.device) -> Knowledge:
    """Before the first example."""
    episodic = EpisodicMemory(corrections=torch.zeros(0, features, device=device))
    return Knowledge(empty_semantic_memory(dimensions, device), episodic, Calibration())


@dataclass(frozen=True)
class Taught:
    """What teaching single examples came to."""

    knowledge: Knowledge
    kept: tuple[int, ...] = ()
    """Which of the examples are kept as corrections."""
    wrong: tuple[int, ...] = ()
    """Which of the examples were answered wrong."""


@dataclass
class _Framed:
    """A frame, and what was made in it."""

    summed: Projection
    metric: Metric
    """Of what is summed up."""
    judges: dict[int, tuple[Representatives, Judges]] = field(default_factory=dict)
    """By class: its representatives, and some of them."""

    @classmethod
    def of(cls, metric: Metric, whitening: Whitening) -> _Framed:
        return cls(Projection.into(metric.frame, whitening), metric)


@dataclass
class _Made:
    """What was made of some sums, and would only be made again: to the same bits."""

    semantic: SemanticMemory
    whitening: Whitening
    means: Means
    framed: _Framed | None = None
    known: Knowledge | None = None
    """The newest with these sums that a metric was fitted to."""
    vote: VotePredictor | None = None
    learned: LearnedMetric | None = None


class MetricLearner:
    """Adds examples to knowledge. Holds what stays the same over a learner's life, and what was made last."""

    def __init__(self, features: FeatureMap, config: MetricConfig) -> None:
        self._features = features
        self._config = config
        self._made: list[_Made] = []
        """For what is known, and for what is known with the episode in progress."""

    def learn(
        self, known: Knowledge, s: Tensor, y: Tensor, held_out: Tensor, episode: int, generator: torch.Generator
    ) -> Knowledge:
        """Learn an episode's stable features s (n, features) of classes y; `held_out`: what the network never sees."""
        before = known.semantic.examples
        semantic = known.semantic.folded().learn(self._batches(s, y))
        episodic = known.episodic
        kept_out = torch.zeros(len(y), dtype=torch.bool)
        kept_out[held_out] = True
        most = self._config.representatives_of(len({*before, *y.unique().tolist()}))
        for class_id in y.unique().tolist():
            members = torch.nonzero(y == class_id).squeeze(1)
            members = members[torch.randperm(len(members), generator=generator)]
            members = members[kept_out[members].argsort(descending=True, stable=True)][:most]  # what nobody saw first
            earlier = before.get(class_id, 0)
            chosen = s[members.to(s.device)]
            episodic = episodic.represent(class_id, chosen, episode, kept_out[members], earlier, most, generator)
        return self.calibrate(Knowledge(semantic, episodic.thinned(most), known.calibration))

    def teach(
        self,
        known: Knowledge,
        s: Tensor,
        y: Tensor,
        episode: int,
        vote: VotePredictor | None,
        correct: Sequence[bool],
        corrections: Sequence[int] = (),
    ) -> Taught:
        """Learn single examples at once.

        `correct`: which of them may become corrections; where none may, nothing is answered here. `corrections`: those
        that are kept as such however they are answered.
        """
        ids = tuple(y.tolist())
        phi = self._features(s)
        semantic = known.semantic.teach(phi, ids)
        known = Knowledge(semantic, self._represented(known, s, ids, episode), known.calibration)
        if self._must_fold(semantic):
            known = self.calibrate(replace(known, semantic=semantic.folded()))
        if not any(correct):
            return Taught(known)
        learned = self.fit(known, vote)
        place = {class_id: row for row, class_id in enumerate(learned.metric.class_ids)}
        rows = torch.tensor([place[class_id] for class_id in ids], device=s.device)
        # Kept is also what is right only thanks to other corrections, or by so little that the next may change it.
        plain, bent = self._scores(learned, known, s, phi, vote)
        others = plain.scatter(1, rows[:, None], -torch.inf).amax(1)
        unsure = plain.gather(1, rows[:, None]).squeeze(1) - others < 2.0 * known.calibration.temperature
        episodic, valid = known.episodic, {row for row in _last_words(s, ids) if correct[row]}
        kept = set(corrections) | (_places(unsure) & valid)
        wrong = _places(bent.argmax(1) != rows)
        report, wrong = tuple(sorted(wrong)), wrong & valid - kept
        while True:
            kept |= wrong
            if kept:
                chosen = tuple(ids[row] for row in sorted(kept))
                episodic_now = episodic.correct(s[sorted(kept)], chosen, episode, self._config.corrections)
                known = replace(known, episodic=episodic_now)
            if valid <= kept or not kept:
                break
            # A correction may have bent away the answer for another example of the lesson.
            _, bent = self._scores(self.fit(known, vote), known, s, phi, vote)
            wrong = _places(bent.argmax(1) != rows) & valid - kept
            if not wrong:
                break
        return Taught(known, tuple(sorted(kept)), report)

    def _must_fold(self, semantic: SemanticMemory) -> bool:
        """Whether too many examples wait to be summed up: over all, or of a class that is mostly made of them."""
        most = max(_WAITING, self._features.dimensions)
        if len(semantic.taught_ids) > min(most, int(semantic.counts.sum()) // _WAITING_SHARE):
            return True
        summed = dict(zip(semantic.class_ids, semantic.counts.tolist(), strict=True))
        waiting = Counter(semantic.taught_ids)
        return any(n >= max(_WAITING_OF_CLASS, summed.get(class_id, 0)) for class_id, n in waiting.items())

    def fit(self, known: Knowledge, vote: VotePredictor | None) -> LearnedMetric:
        """The metric that these memories make."""
        made = self._made_of(known)
        if made.learned is None or made.known is not known or made.vote is not vote:
            made.learned = LearnedMetric.fit(
                *(known.semantic, known.episodic, self._features, self._config, known.calibration, made.whitening),
                *(self._framed(known).summed, lambda metric: self._bonus(known, metric), vote, made.learned),
            )
            made.known, made.vote = known, vote
        return made.learned

    def _framed(self, known: Knowledge) -> _Framed:
        """The frame that the sums make with the noise that was found."""
        made, noise = self._made_of(known), known.calibration.noise
        if made.framed is None or made.framed.metric.noise != noise:
            made.framed = _Framed.of(self._metric(made, noise), made.whitening)
        return made.framed

    def _metric(self, made: _Made, noise: float) -> Metric:
        return Metric.of(made.means, self._config.floor, noise)

    def calibrate(self, known: Knowledge) -> Knowledge:
        """Fit noise, temperature and novelty on representatives, each left out in turn."""
        made, old = self._made_of(known), known.calibration
        whitening = made.whitening
        plain = Calibration(weight=old.weight, fruitless=old.fruitless)
        single = self._single_memories(known, whitening)
        if single is None:
            return replace(known, calibration=plain)
        chosen = single.settled(made.means.counts)
        settled = single.take(chosen)
        metric = self._metric(made, 1.0)
        metric = self._metric(made, _bounded(settled.noise(metric, whitening)))
        # Scores that must be cooled by a temperature T are surer than Gaussians would be. Half of that, √T, is taken
        # for noise of the examples, so that a mean of few is trusted less too.
        surer = _sureness(settled.left_out(metric, whitening).scores, settled.rows)
        metric = self._metric(made, _bounded(metric.noise * surer**0.5))
        made.framed = _Framed.of(metric, whitening)
        left = single.left_out(metric, whitening)
        plain = replace(plain, noise=metric.noise, unit=_sureness(left.scores[chosen], single.rows[chosen]))
        bonus = self._bonus(replace(known, calibration=plain), metric)
        scores = left.scores + metric.bonuses(bonus)
        ids, answers = metric.class_ids, scores.argmax(1).tolist()
        pairs = Counter((ids[row], ids[answer]) for row, answer in zip(single.rows.tolist(), answers, strict=True))
        calibration = replace(
            plain,
            temperature=fit_temperature(scores, single.rows),
            references=left.novelty.sort().values.cpu(),
            quality=measure(pairs, ids),
        )
        return replace(known, calibration=calibration)

    def weigh(self, known: Knowledge, vote: VotePredictor) -> Knowledge:
        """Fit the weight of the network's vote, on examples that it never trained on."""
        calibration, whitening = known.calibration, self._made_of(known).whitening
        single = self._single_memories(known, whitening)
        if single is None or not enough(int(single.held_out.sum())):
            return known
        single = single.take(single.held_out)
        metric = self.fit(known, None).metric
        bonuses = metric.bonuses(self._bonus(known, metric))
        scores, rows = single.left_out(metric, whitening).scores + bonuses, single.rows
        votes = vote.class_scores(single.s) @ voters(vote, metric)
        weight = fit_weight(scores, votes, rows)
        fruitless = 0 if weight else calibration.fruitless + 1
        temperature = fit_temperature(scores + weight * votes, rows) if weight else calibration.temperature
        fitted = replace(calibration, weight=weight, fruitless=fruitless, temperature=temperature)
        return replace(known, calibration=fitted)

    def _bonus(self, known: Knowledge, metric: Metric) -> float:
        """The largest bonus for classes of few at which few examples of well-known classes are lost to them."""
        summed = known.semantic.counts.tolist()
        few = [row for row in range(len(metric.class_ids)) if row >= len(summed) or summed[row] < WELL_KNOWN]
        judges = self._judges(known) if few else None
        if judges is None:
            return 0.0
        leverage = self._made_of(known).whitening.leverage
        return judges.largest_bonus(metric, few, leverage, self._config.few_losses, known.calibration.unit)

    def _judges(self, known: Knowledge) -> Judges | None:
        """Some representatives of each class that is well known; only those that have changed are looked at anew."""
        counts = dict(zip(known.semantic.class_ids, known.semantic.counts.tolist(), strict=True))
        settled = [c for c in known.episodic.classes if counts.get(c.class_id, 0) >= WELL_KNOWN]
        if not enough(sum(len(c.features) for c in settled)):
            return None
        each, framed = max(1, MOST_JUDGES // len(settled)), self._framed(known)
        whitening = self._made_of(known).whitening
        well_known = [row for row, n in enumerate(counts.values()) if n >= WELL_KNOWN]
        for memories in settled:
            before = framed.judges.get(memories.class_id)
            if before is None or before[0] is not memories:
                some = replace(memories, features=memories.features[:each], held_out=memories.held_out[:each])
                single = SingleMemories.of([some], known.semantic, self._features, whitening)
                judges = Judges.of(single, framed.metric, well_known, whitening.leverage)
                framed.judges[memories.class_id] = memories, judges
        return Judges.joined([framed.judges[memories.class_id][1] for memories in settled])

    def release(self, known: Knowledge) -> None:
        """Keep nothing that was made for other sums than these."""
        self._made = [made for made in self._made if made.semantic.has_sums_of(known.semantic)]

    def _made_of(self, known: Knowledge) -> _Made:
        """What was made of these sums; the whitening is made now, if it never was."""
        made = next((made for made in self._made if made.semantic.has_sums_of(known.semantic)), None)
        if made is None:
            whitening = fit_whitening(known.semantic, self._features.stable, self._config)
            made = _Made(known.semantic, whitening, whitened_means(known.semantic, whitening))
            self._made = [*self._made[-1:], made]
        return made

    def _represented(self, known: Knowledge, s: Tensor, ids: tuple[int, ...], episode: int) -> EpisodicMemory:
        """With taught examples as representatives of classes that have room for them."""
        episodic, before = known.episodic, known.semantic.examples
        taught = set(ids)
        most = self._config.representatives_of(len(before.keys() | taught))
        held = {c.class_id: len(c.features) for c in episodic.classes if c.class_id in taught}
        arrived: dict[int, list[int]] = {}
        for row, class_id in enumerate(ids):
            if held.get(class_id, 0) + len(arrived.get(class_id, ())) < most:
                arrived.setdefault(class_id, []).append(row)
        generator = torch.Generator().manual_seed(0)  # nothing is drawn while there is room
        for class_id, rows in arrived.items():
            earlier = before.get(class_id, 0)
            seen = torch.zeros(len(rows), dtype=torch.bool)  # by the network, at some time
            episodic = episodic.represent(class_id, s[rows], episode, seen, earlier, most, generator)
        return episodic

    def _batches(self, s: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for part, ids in zip(s.split(_CHUNK), y.split(_CHUNK), strict=True):
            yield self._features(part), ids

    def _scores(
        self, learned: LearnedMetric, known: Knowledge, s: Tensor, phi: Tensor, vote: VotePredictor | None
    ) -> tuple[Tensor, Tensor]:
        """Scores as they are now, without and with what corrections add: (n, classes) each."""
        plain = learned.scores(learned.along_axes(phi))
        if vote is not None and known.calibration.weight:
            plain = plain + known.calibration.weight * (vote.class_scores(s) @ voters(vote, learned.metric))
        if not len(learned.corrections.margins):
            return plain, plain
        return plain, learned.corrections.bend(plain, learned.around(phi))

    def _single_memories(self, known: Knowledge, whitening: Whitening) -> SingleMemories | None:
        """Representatives that can be left out of what is known, or nothing where there are too few of them."""
        classes, counts = known.episodic.classes, known.semantic.counts.tolist()
        place = {class_id: row for row, class_id in enumerate(known.semantic.class_ids)}
        classes = tuple(c for c in classes if counts[place[c.class_id]] >= 2)
        if len(place) < 2 or not enough(sum(len(c.features) for c in classes)):
            return None
        return SingleMemories.of(classes, known.semantic, self._features, whitening)


def _sureness(scores: Tensor, rows: Tensor) -> float:
    return max(1.0, fit_sureness(scores, rows))


def _bounded(noise: float) -> float:
    return min(max(noise, _LEAST_NOISE), _MOST_NOISE)


def _places(marked: Tensor) -> set[int]:
    return set(torch.nonzero(marked).squeeze(1).tolist())


def _last_words(s: Tensor, ids: tuple[int, ...]) -> list[int]:
    """Rows that no later one contradicts, with the same features but another class."""
    places = [row.numpy().tobytes() for row in s.cpu()]
    last = dict(zip(places, ids, strict=True))
    return [row for row, (place, class_id) in enumerate(zip(places, ids, strict=True)) if last[place] == class_id]
