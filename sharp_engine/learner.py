"""The learner: a metric and a network, their memories, and the stream it learns from.

It must never lose what it was promised to keep: every call either completes or raises and leaves the learner as it was
(an episode that fails or is cancelled: as it was at the end of its last phase). One thread may learn while others use
`predictor`, which is immutable.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from sharp_engine.config import ArchitectureConfig, LearnerConfig
from sharp_engine.device import resolve_device
from sharp_engine.errors import (
    ConfigError,
    EmptyEpisodeError,
    EpisodeFailedError,
    EpisodeStateError,
    InputError,
    LabelError,
    NoPositivePairError,
    NothingLearnedError,
)
from sharp_engine.inputs import as_examples
from sharp_engine.inspection import Inspection, episodes_left, inspect_layer
from sharp_engine.labels import Label, LabelLike, Labels, as_labels
from sharp_engine.memory.first_examples import FirstExamples
from sharp_engine.memory.long_term import LongTermMemory
from sharp_engine.memory.short_term import ShortTermMemory
from sharp_engine.network.architecture import Architecture, Normaliser, resolve_architecture
from sharp_engine.network.backbone import build_backbone, read_weights
from sharp_engine.network.features import FeatureMap
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.pretrained import build_pretrained
from sharp_engine.network.state import Network, build
from sharp_engine.prediction import novelty
from sharp_engine.prediction.answers import Predictions, Predictor
from sharp_engine.prediction.metric_predictor import MetricPredictor
from sharp_engine.prediction.quality import Quality
from sharp_engine.prediction.vote import VotePredictor
from sharp_engine.stream.segmenter import Segmenter
from sharp_engine.training.episode import EpisodeTrainer, Examples, RunningEpisode, consolidate, hold_out
from sharp_engine.training.knowledge import Knowledge, MetricLearner, Taught, nothing_known
from sharp_engine.training.pretraining import freeze_pretrained, load_pretrained
from sharp_engine.training.progress import Cancel, EpisodeReport, Observer, Reporter, TeachReport

log = logging.getLogger(__name__)

_CHUNK = 128
"""Examples per pass of the preprocessor."""

_FEW_EPISODES = 2
"""Where idle units last for fewer episodes than this, learning warns."""


class Learner:
    """Learns episode by episode and names what it has learned.

    >>> import torch
    >>> from sharp_engine import Learner, preset
    >>> learner = Learner(preset("default"))
    >>> x = torch.cat((torch.rand(40, 8), torch.rand(40, 8) - 1.0))
    >>> report = learner.learn_episode(x, ["high"] * 40 + ["low"] * 40)
    >>> report.classes
    ('high', 'low')
    >>> learner.predict(x[:1]).labels
    ['high']
    """

    def __init__(self, config: LearnerConfig | None = None) -> None:
        self.config = config or LearnerConfig()
        self.device = resolve_device(self.config.device)
        self.architecture: Architecture | None = None
        """What was chosen; absent until the input shape is known."""
        self.labels = Labels()
        self.episodes = 0
        """How many episodes were learned."""
        self.network_episodes = 0
        """How many of them the network learned: the clock by which its memories age."""
        self.generator = torch.Generator().manual_seed(self.config.seed)
        """All of the learner's random numbers."""
        self.ltm = LongTermMemory()
        self.running: RunningEpisode | None = None
        """The episode in progress, as it stands at the end of a phase."""
        self.pending: list[Examples] = []
        """Observed, not yet learned."""
        self.found: list[int] = []
        """Lengths of the complete episodes at the head of `pending`."""
        self.knowledge: Knowledge | None = None
        """What is known in the learned metric, where there is one."""
        self.first: FirstExamples | None = None
        """What was taught before there was a scale of features, while that is all there is."""
        self._predictor: Predictor | None = None
        if self.config.architecture.input_shape is not None:
            self.build(self.config.architecture.input_shape)

    # ---- construction -------------------------------------------------------------------------------------------

    def build(
        self, input_shape: tuple[int, ...], backbone: nn.Module | None = None, *, load_weights: bool = True
    ) -> None:
        """Settle the architecture and make the network. The first batch does this by itself.

        A snapshot brings its own weights: it gives its backbone, loads no pretrained G, and fills a blank network.
        """
        config, device, stable = self.config.architecture, self.device, self.config.metric.enabled
        architecture = resolve_architecture(config, input_shape, stable)
        if config.backbone is not None:
            backbone = backbone or build_backbone(config.backbone, device)
        elif architecture.pretrained and backbone is None:
            assert config.pretrained is not None
            state = read_weights(Path(config.pretrained))
            backbone = build_pretrained(architecture, state, config.pretrained, device)
        preprocessor = self.preprocessor_for(architecture, backbone)
        features = preprocessor.shape_of_features(input_shape)
        # Nothing is drawn from the learner's own before everything fits.
        generator = self._random_copy() if load_weights else None
        m = self.config.memory.replayed_episodes
        network = build(architecture, config.density, config.fan_in, m, features, generator, device)
        if config.pretrained is not None and not stable:
            freeze_pretrained(network)
            if load_weights:
                load_pretrained(network, config.pretrained)
        memory = self.config.memory
        self.preprocessor = preprocessor
        self.network: Network = network
        self.stm = ShortTermMemory(network.cut_shape, memory.stm_capacity, memory.stm_share)
        self.segmenter = Segmenter(self.config.stream, int(torch.tensor(input_shape).prod()), self.config.seed)
        if generator is not None:
            self.generator.set_state(generator.get_state())
        if stable:
            count = self.config.metric.random_features_for(features[0])
            feature_map = FeatureMap(features[0], count, self.config.seed, device)
            self.metric_learner = MetricLearner(feature_map, self.config.metric)
            self.feature_map = feature_map
            self.knowledge = self._nothing_known(features[0])
            if architecture.kind != "dictionary":
                self.first = FirstExamples(torch.zeros(0, features[0], device=device))
        self.architecture = architecture

    def preprocessor_for(self, architecture: Architecture, backbone: nn.Module | None) -> Preprocessor:
        """What stands before the first layer, not fitted to anything yet."""
        config = self.config.architecture
        normaliser = Normaliser(config, architecture.input_shape, self.device)
        dictionary = config.dictionary if architecture.kind == "dictionary" else None
        return Preprocessor(normaliser, self.device, backbone, dictionary, self.config.metric.enabled)

    def reconfigure(self, config: LearnerConfig) -> None:
        """Take other settings from here on. Those that the learner was built from must stay as they are.

        Where pretrained weights came from may change: they are the learner's own by now.
        """
        for name in ("architecture", "memory", "metric", "seed", "device"):
            old, new = getattr(self.config, name), getattr(config, name)
            if name == "architecture":
                if config.metric.enabled and (old.pretrained is None) != (new.pretrained is None):
                    raise ConfigError("architecture.pretrained cannot come or go once a learner is made")
                old, new = _without_sources(old), _without_sources(new)
            if old != new:
                raise ConfigError(f"{name} cannot change once a learner is made")
        self.config = config

    # ---- learning -----------------------------------------------------------------------------------------------

    def learn_episode(
        self, x: object, y: LabelLike, *, observer: Observer | None = None, cancel: Cancel | None = None
    ) -> EpisodeReport:
        """Learn one whole episode from examples x (n, *input shape) and their labels y."""
        self._require_no_episode()
        if self.pending:
            raise EpisodeStateError(f"{self.pending_examples} observed examples wait: end their episode first")
        examples, labels = self._validated(x, y)
        self._check_episode(labels)
        self._begin(self._accept(examples, labels))
        return self.resume_episode(observer=observer, cancel=cancel)

    def observe(
        self, x: object, y: LabelLike, *, observer: Observer | None = None, cancel: Cancel | None = None
    ) -> list[EpisodeReport]:
        """Take some examples of a stream. With automatic boundaries, learn every episode that is now complete."""
        self._require_no_episode()
        examples = self._accept(*self._validated(x, y))
        self.pending.append(examples)
        if len({part.x.dtype for part in self.pending}) > 1:
            self.pending = [part.as_floats() for part in self.pending]
        if self.config.stream.boundaries == "explicit":
            return []
        self.found += self.segmenter.feed(examples.x, examples.y)
        return self.learn_found(observer=observer, cancel=cancel)

    def learn_found(self, *, observer: Observer | None = None, cancel: Cancel | None = None) -> list[EpisodeReport]:
        """Learn the episodes that the segmenter found among the pending examples and that were not learned yet."""
        reports = []
        while self.running is not None or self.found:
            if self.running is None:
                episode, rest = self._split(self.found[0])
                if self.knowledge is None and not _has_pair(episode.y.tolist()):  # too thin: it joins the next one
                    if len(self.found) == 1:
                        break
                    self.found[:2] = [sum(self.found[:2])]
                    continue
                self._check_episode([self.labels.label(i) for i in episode.y.tolist()])
                self._begin(episode)
                self.pending, self.found = rest, self.found[1:]
            reports.append(self.resume_episode(observer=observer, cancel=cancel))
        return reports

    def end_episode(self, *, observer: Observer | None = None, cancel: Cancel | None = None) -> EpisodeReport:
        """Learn what was observed since the last boundary as one episode."""
        self._require_no_episode()
        if not self.pending:
            raise EmptyEpisodeError("nothing was observed since the last boundary")
        episode, _ = self._split(self.pending_examples)
        self._check_episode([self.labels.label(i) for i in episode.y.tolist()])
        self._begin(episode)
        self.pending, self.found = [], []
        self.segmenter.clear()
        return self.resume_episode(observer=observer, cancel=cancel)

    def resume_episode(
        self,
        x: object = None,
        y: LabelLike | None = None,
        *,
        observer: Observer | None = None,
        cancel: Cancel | None = None,
    ) -> EpisodeReport:
        """Go on with the episode in progress, after a cancellation, a failure or loading a snapshot.

        x and y are needed only if the snapshot was saved without pending examples; they must be the same ones.
        """
        running = self._require_running()
        if running.examples is None:
            running.examples = self._same_examples(x, y, running)
        self._prepare(running)
        phases = self.config.training.phases if running.trains else 0
        reporter = Reporter(observer, cancel, running.number, phases, running.seconds)
        reporter.phase = running.phases_done
        if not running.trains:
            reporter.tell("episode-started", self.network)
            self._learn_metric(running, reporter)
            return self._finish(running, None, reporter)
        trainer = EpisodeTrainer(
            self.preprocessor, self.config, running.examples, running.heldout, self.network, self.stm, running.features
        )
        reporter.epochs, steps = trainer.epochs(self.config.training)
        reporter.steps_left = (phases - running.phases_done) * reporter.epochs * steps
        reporter.tell("episode-started", self.network)
        self._learn_metric(running, reporter)
        try:
            while running.phases_done < phases:
                self._learn_phase(running, trainer, reporter)
        except EpisodeFailedError as error:
            if self.knowledge is None:
                raise
            # The metric knows the episode: that the network cannot learn it must not undo this.
            log.warning("the network did not learn episode %d: %s", running.number, error)
            self.network, running.trains, running.losses = running.before.copy(), False, []
            return self._finish(running, None, reporter)
        return self._finish(running, trainer, reporter)

    @torch.no_grad()
    def teach(self, x: object, y: LabelLike, *, correct: bool = True) -> TeachReport:
        """Learn labelled examples at once, without an episode: the next prediction names them.

        An example that would be answered wrong is kept as a correction, unless told not to `correct`: then examples
        count, as those of an episode do, which is right for many of them and costs little. Needs a learned metric, and
        features that are stable already: with a patch dictionary, a first episode must have been learned.
        """
        examples, labels = self._validated(x, y)
        if not self.config.metric.enabled:
            raise EpisodeStateError("teaching needs a learned metric, and metric.enabled is false for this learner")
        shape = tuple(examples.shape[1:])
        if not self._can_teach(shape):
            raise EpisodeStateError("images are taught once a first episode has shown what they look like")
        if self.architecture is None:
            self.build(shape)
        assert self.knowledge is not None
        features, ids = self.preprocessor.unscaled(examples), self.labels.ids(labels).tolist()
        before, running, first = self.knowledge.class_ids, self.running, self.first
        if running is not None and running.knowledge is not None:
            before |= running.knowledge.class_ids
        if first is not None:
            first = first.joined(features, ids, correct)
        if first is not None and running is None:
            taught = self._teach_anew(first)
            wrong = sum(row >= len(first.class_ids) - len(ids) for row in taught.wrong)
        else:
            wrong = self._teach_more(features, ids, correct)
        self.first = first if first is not None and first.few else None
        self._predictor = None
        classes = list(dict.fromkeys(ids))
        return TeachReport(
            examples=len(ids),
            classes=tuple(self.labels.label(i) for i in classes),
            new_classes=tuple(self.labels.label(i) for i in classes if i not in before),
            corrections=wrong,
        )

    def _teach_anew(self, first: FirstExamples) -> Taught:
        """Know the first examples and nothing else, by a scale of their own."""
        if not first.class_ids:
            self.preprocessor = self.preprocessor.unfitted()
            self.knowledge = self._nothing_known(first.features.shape[1])
            return Taught(self.knowledge)
        self.preprocessor = self.preprocessor.scaled_by(first.features)
        return self._reteach(first)

    def _reteach(self, first: FirstExamples) -> Taught:
        """Know the first examples and nothing else, by the scale that there is."""
        scale, ids = self.preprocessor.scale, torch.tensor(first.class_ids)
        assert scale is not None
        nothing = self._nothing_known(first.features.shape[1])
        taught = self.metric_learner.teach(nothing, scale(first.features), ids, self.episodes, None, first.correct)
        self.knowledge = taught.knowledge
        return taught

    def _nothing_known(self, features: int) -> Knowledge:
        return nothing_known(features, self.feature_map.dimensions, self.device)

    def _teach_more(self, features: Tensor, ids: list[int], correct: bool) -> int:
        """Add examples to what is known; return how many of them were answered wrong."""
        scale, running = self.preprocessor.scale, self.running
        assert scale is not None and self.knowledge is not None
        s, classes = scale(features), torch.tensor(ids)
        kept: tuple[int, ...] = ()
        wrong: int | None = None
        if running is not None and running.knowledge is not None:
            answered = self._taught(running.knowledge, s, classes, running.number, correct)
            running.knowledge, running.outdated = answered.knowledge, True
            kept, wrong = answered.kept, len(answered.wrong)
        taught = self._taught(self.knowledge, s, classes, self.episodes, correct, kept)
        self.knowledge = taught.knowledge
        return len(taught.wrong) if wrong is None else wrong

    def _can_teach(self, shape: tuple[int, ...]) -> bool:
        """Whether examples of this shape have stable features already, or can have them without an episode."""
        if self.architecture is not None:
            return self.preprocessor.ready or self.architecture.kind != "dictionary"
        return resolve_architecture(self.config.architecture, shape, stable=True).kind != "dictionary"

    def _taught(
        self, known: Knowledge, s: Tensor, ids: Tensor, episode: int, correct: bool, corrections: Sequence[int] = ()
    ) -> Taught:
        """What teaching single examples s (n, features) makes of some knowledge."""
        vote = self._network_vote() if correct and known.calibration.weight else None
        return self.metric_learner.teach(known, s, ids, episode, vote, [correct] * len(ids), corrections)

    def abandon_episode(self) -> None:
        """Give up the episode in progress: its examples are dropped and the learner is as before it began."""
        running = self._require_running()
        self.network = running.before
        self.generator.set_state(running.random_before)
        self.running = None
        self._predictor = None
        held = {memory.class_id for memory in self.ltm.classes} | {stored.class_id for stored in self.stm.classes}
        if self.knowledge is not None:
            if self.first is not None:
                self._teach_anew(self.first)
            elif not self.knowledge.class_ids:  # what was fitted to the abandoned examples goes with them
                self.preprocessor = self.preprocessor.unfitted()
            self.metric_learner.release(self.knowledge)
            held |= self.knowledge.class_ids
        self.labels.keep(held.union(*(part.y.tolist() for part in self.pending)))

    def _begin(self, examples: Examples) -> None:
        random_before = self.generator.get_state()
        if self.first is not None and self.first.class_ids:  # a better scale, for them too
            earlier = self.first.features
            self.preprocessor = self.preprocessor.fitted(examples.x, self._side_generator(), earlier)
            self._reteach(self.first)
        trains = self._trains(examples.y.tolist())
        most = self.config.metric.representatives if self.knowledge is not None else novelty.REFERENCES
        share = self.config.memory.holdout if trains else 0.0
        heldout = hold_out(examples.y, share, most, self.generator)
        self.running = RunningEpisode(
            self.episodes + 1, examples, examples.fingerprint(), heldout, self.network.copy(), random_before, trains
        )

    def _trains(self, labels: Sequence[Label]) -> bool:
        """Whether the network learns these: with a learned metric it may rest, and needs pairs of several classes."""
        if not self.config.metric.enabled:
            return True
        return not self.network_resting and _has_pair(labels) and len(set(labels)) > 1

    @property
    def network_resting(self) -> bool:
        """Whether the network has stopped learning because its vote added nothing; `wake_network` starts it again."""
        patience = self.config.training.rest_after
        return self.knowledge is not None and 0 < patience <= self.knowledge.calibration.fruitless

    def wake_network(self) -> None:
        """Let a resting network learn again, from the next episode on."""
        self._require_no_episode()
        if self.knowledge is not None:
            calibration = replace(self.knowledge.calibration, fruitless=0)
            self.knowledge = replace(self.knowledge, calibration=calibration)
            self._predictor = None

    @torch.no_grad()
    def _prepare(self, running: RunningEpisode) -> None:
        """Compute the stable features of the episode, once; the first examples settle what they are."""
        if self.knowledge is None or running.features is not None:
            return
        assert running.examples is not None
        x = running.examples.x
        if not self.preprocessor.ready:
            self.preprocessor = self.preprocessor.fitted(x, self._side_generator())
        running.features = torch.cat([self.preprocessor(part) for part in x.split(_CHUNK)])

    @torch.no_grad()
    def _learn_metric(self, running: RunningEpisode, reporter: Reporter) -> None:
        """Make the episode known in the learned metric: predictions name it from here on."""
        if self.knowledge is None or running.knowledge is not None and not running.outdated:
            return
        assert running.examples is not None and running.features is not None
        reporter.check_cancelled()
        y, features = running.examples.y, running.features
        running.knowledge = self.metric_learner.learn(
            self.knowledge, features, y, running.heldout, running.number, self._side_generator()
        )
        running.outdated = False
        self._predictor = None
        reporter.tell("metric-ready", self.network)

    def _side_generator(self) -> torch.Generator:
        """Random numbers that take nothing from the learner's own, and are the same whenever an episode is resumed."""
        return torch.Generator().manual_seed(self.config.seed + 1_000_003 * (self.episodes + 1))

    def _learn_phase(self, running: RunningEpisode, trainer: EpisodeTrainer, reporter: Reporter) -> None:
        """Rewire and train a copy; the learner changes only when the phase is complete."""
        network, generator = self.network.copy(), self._random_copy()
        reporter.phase, reporter.epoch, reporter.loss = running.phases_done + 1, 0, None
        reporter.check_cancelled()
        trainer.rewire(network, reporter.phase, generator)
        reporter.tell("phase-started", network)
        loss = trainer.train(network, generator, reporter)
        self.network = network
        self.generator.set_state(generator.get_state())
        running.losses.append(loss)
        running.seconds = reporter.seconds
        reporter.loss = loss
        reporter.tell("phase-ended", network)

    def _finish(self, running: RunningEpisode, trainer: EpisodeTrainer | None, reporter: Reporter) -> EpisodeReport:
        """Consolidate; without a trainer the network has learned nothing, and stays as it is."""
        reporter.check_cancelled()
        assert running.examples is not None
        self._learn_metric(running, reporter)  # again, if something was taught or forgotten meanwhile
        known = {memory.class_id for memory in self.ltm.classes}
        if self.knowledge is not None:
            known |= self.knowledge.class_ids
        generator = self._random_copy()
        knowledge = running.knowledge
        if trainer is not None:
            network, number = self.network.copy(), self.network_episodes + 1
            after = consolidate(
                *(network, trainer, running, number, self.stm, self.ltm, self.labels, self.config),
                *(self.preprocessor, generator),
            )
            if knowledge is not None:
                knowledge = self.metric_learner.weigh(knowledge, after.predictor)
            self.network, self.stm, self.ltm = after.network, after.stm, after.ltm
            self.network_episodes = number
            self._predictor = after.predictor if knowledge is None else None
        if knowledge is not None:
            self.knowledge = knowledge
            self.first = None
            self.metric_learner.release(knowledge)
        self.generator.set_state(generator.get_state())
        self.episodes = running.number
        self.running = None
        ids = running.examples.y.unique().tolist()
        report = EpisodeReport(
            episode=running.number,
            classes=tuple(self.labels.label(i) for i in ids),
            new_classes=tuple(self.labels.label(i) for i in ids if i not in known),
            examples=len(running.examples.y),
            losses=tuple(running.losses),
            recruited={
                now.name: int((was.ranks == 0).sum()) - int((now.ranks == 0).sum())
                for was, now in zip(running.before.layers, self.network.layers, strict=True)
            },
            seconds=reporter.seconds,
        )
        self._warn_of_scarce_units(running)
        reporter.tell("episode-learned", self.network)
        return report

    def _episodes_left(self, network: Network, learned: int) -> dict[str, int]:
        once = self.config.training.recruit_before_cut == "first-episode"  # what comes before the cut needs no more
        return episodes_left(network.layers[network.cut :] if once else network.layers, learned)

    def _warn_of_scarce_units(self, running: RunningEpisode) -> None:
        """Warn while there is still time, and again only when it has become worse.

        With a learned metric nothing needs to be said: classes do not depend on idle units there.
        """
        if self.knowledge is not None:
            return
        now = self._episodes_left(self.network, running.number)
        least = min(now.values(), default=_FEW_EPISODES)
        before = min(self._episodes_left(running.before, running.number - 1).values(), default=_FEW_EPISODES)
        if least < min(before, _FEW_EPISODES):
            log.warning(
                "after episode %d the idle units of %s last for %s at the present rate: classes that come later share "
                "units in use and are learned less well",
                running.number,
                ", ".join(name for name, left in now.items() if left == least),
                "one more episode" if least else "no other episode",
            )

    # ---- prediction ---------------------------------------------------------------------------------------------

    @property
    def predictor(self) -> Predictor:
        """What answers for the episodes learned so far; safe to use from other threads while this learner learns."""
        if self._predictor is None:
            if self.architecture is None:
                raise NothingLearnedError("nothing was learned yet: there is no class to name")
            running, knowledge = self.running, self.knowledge
            vote = self._network_vote() if knowledge is None or knowledge.calibration.weight else None
            if knowledge is None:
                if vote is None:
                    raise NothingLearnedError("nothing was learned yet: there is no class to name")
                self._predictor = vote
                return vote
            episodes = self.episodes
            if running is not None and running.knowledge is not None:
                knowledge, episodes = running.knowledge, running.number
            if not knowledge.class_ids:
                raise NothingLearnedError("nothing was learned yet: there is no class to name")
            with torch.no_grad():
                learned = self.metric_learner.fit(knowledge, vote)
            self._predictor = MetricPredictor(
                self.preprocessor,
                self.feature_map,
                learned,
                knowledge.episodic,
                knowledge.calibration,
                self.labels,
                episodes,
                vote,
            )
        return self._predictor

    def _network_vote(self) -> VotePredictor | None:
        """The paper's vote, for what the network had learned when the episode in progress began."""
        if not self.ltm.classes:
            return None
        network = self.network if self.running is None else self.running.before
        return VotePredictor(self.preprocessor, network, self.ltm, self.labels, self.config.prediction)

    def predict(self, x: object, *, top: int = 1, memories: int = 0, novelty: bool = True) -> Predictions:
        """Name a batch of examples (n, *input shape).

        `top`: how many classes to list per example. `memories`: how many nearest memories. `novelty`: whether to score
        how far outside everything learned each example lies.
        """
        if top < 0 or memories < 0:
            raise InputError(f"top and memories must be at least 0, not {min(top, memories)}")
        predictor = self.predictor
        assert self.architecture is not None
        return predictor.predict(as_examples(x, self.architecture.input_shape), top, memories, novelty)

    # ---- memory and state ---------------------------------------------------------------------------------------

    def forget(self, label: Label) -> None:
        """Remove a class from all memories and from everything not yet learned. The others stay as they are."""
        class_id = self.labels.find(label)
        running = self.running
        if running is not None and running.examples is None:
            raise EpisodeStateError("the episode in progress was loaded without its examples: give them, or abandon it")
        self._forget_pending(class_id)
        if self.architecture is not None:
            self.segmenter.forget(class_id)
            self.stm = self.stm.forget(class_id)
        self.ltm = self.ltm.forget(class_id)
        if self.first is not None:
            self.first = self.first.forget(class_id)
        if self.first is not None and running is None:
            self._teach_anew(self.first)
        elif self.knowledge is not None:
            self.knowledge = self.metric_learner.calibrate(_folded(self.knowledge.forget(class_id)))
        self.labels.remove(label)
        if running is not None and running.examples is not None:
            self._forget_in_progress(running, running.examples, class_id)
        self._predictor = None

    def rename_class(self, label: Label, new: Label) -> None:
        """Give a class another label, which no other class has. Everything known of it stays, at any time."""
        self.labels.rename(label, new)
        self._predictor = None

    def merge_classes(self, source: Label, target: Label) -> None:
        """Make one class part of another, as if all its examples had been of the other from the start.

        Exactly so in the learned metric. The network's memories of both are compared on the units that both live on;
        without any, the source's are dropped. If only one of the two is still replayed, the merged class is replayed no
        longer: what is written anew from half of a class would forget the other half.
        """
        self._require_no_episode()
        source_id, target_id = self.labels.find(source), self.labels.find(target)
        if source_id == target_id:
            raise LabelError(f"class {source!r} cannot be merged with itself")
        if self.first is not None:
            self.first = self.first.merge(source_id, target_id)
            self._teach_anew(self.first)
        elif self.knowledge is not None:
            knowledge = self.knowledge.merge(source_id, target_id, self.config.metric.representatives)
            self.knowledge = self.metric_learner.calibrate(knowledge)
        if self.architecture is not None:
            self._merge_memories(source_id, target_id)
            self.segmenter.merge(source_id, target_id)
        self.pending = [Examples(p.x, torch.where(p.y == source_id, target_id, p.y)) for p in self.pending]
        self.labels.remove(source)
        self._predictor = None

    def _merge_memories(self, source: int, target: int) -> None:
        """Merge what the network's two memories hold of a class into what they hold of another."""
        known = {memory.class_id: memory for memory in self.ltm.classes if memory.class_id in (source, target)}
        if len(known) == 2 and not bool((known[source].mask & known[target].mask).any()):
            self.stm, self.ltm = self.stm.forget(source), self.ltm.forget(source)  # no unit could compare both
            return
        replayed = {stored.class_id for stored in self.stm.classes} & {source, target}
        if len(replayed) < len(known):
            self.stm = self.stm.forget(source).forget(target)
        self.stm = self.stm.merge(source, target)
        ltm = self.ltm.merge(source, target, self.config.memory.ltm_per_class)
        self.ltm = novelty.calibrate(ltm, self.config.prediction.floor_quantile) if ltm.classes else ltm

    def inspect(self) -> Inspection:
        """The learner in figures."""
        built, known = self.architecture is not None, self.knowledge
        named = tuple(known.semantic.examples) if known else tuple(memory.class_id for memory in self.ltm.classes)
        return Inspection(
            architecture=self.architecture.describe() if self.architecture is not None else "",
            device=str(self.device),
            episodes=self.episodes,
            classes=tuple(self.labels.label(class_id) for class_id in named),
            layers=tuple(inspect_layer(layer) for layer in self.network.layers) if built else (),
            stm_bytes=self.stm.nbytes if built else 0,
            stm_overhead_bytes=self.stm.overhead if built else 0,
            stm_budget_bytes=self.stm.budget if built else 0,
            stm_examples=self.stm.examples if built else 0,
            ltm_bytes=self.ltm.nbytes,
            ltm_entries=self.ltm.entries,
            semantic_bytes=known.semantic.nbytes if known else 0,
            episodic_bytes=known.episodic.nbytes if known else 0,
            features_bytes=self.preprocessor.nbytes if built else 0,
            examples_per_class={self.labels.label(i): n for i, n in known.semantic.examples.items()} if known else {},
            quality=self.quality(),
            network_weight=known.calibration.weight if known else None,
            network_resting=self.network_resting,
            episodes_left=min(self._episodes_left(self.network, self.network_episodes).values(), default=None)
            if built
            else None,
            pending_examples=self.pending_examples,
            phases_done=None if self.running is None else self.running.phases_done,
        )

    def quality(self) -> Quality | None:
        """How good its answers are, on held-out examples; absent without a learned metric, and while they are few.

        Measured when an episode is learned, and now and then while examples are taught.
        """
        quality = self.knowledge.calibration.quality if self.knowledge is not None else None
        return None if quality is None else quality.named(self.labels.label)

    def save(self, path: str | os.PathLike[str], *, pending: bool = True) -> None:
        """Write a snapshot, complete or not at all. `pending` includes raw examples that are not learned yet."""
        from sharp_engine.snapshot import save

        save(self, Path(path), pending)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Learner:
        """Read a snapshot; `device` replaces the one in its config."""
        from sharp_engine.snapshot import load

        return load(Path(path), device)

    @property
    def pending_examples(self) -> int:
        """How many examples were observed and are not learned yet."""
        return sum(len(part.y) for part in self.pending)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _validated(self, x: object, y: LabelLike) -> tuple[Tensor, list[Label]]:
        """Examples and labels that fit this learner; changes nothing."""
        shape = self.architecture.input_shape if self.architecture is not None else None
        examples, labels = as_examples(x, shape), as_labels(y)
        if len(labels) != len(examples):
            raise LabelError(f"{len(examples)} examples but {len(labels)} labels")
        if not labels:
            raise EmptyEpisodeError("there are no examples")
        self.labels.check(labels)
        return examples, labels

    def _check_episode(self, labels: Sequence[Label]) -> None:
        """Raise unless these make an episode: a class has two examples, and STM can hold one of each class.

        A class of the newest m episodes that could not be replayed would be forgotten.
        """
        if self.knowledge is not None or self.architecture is None and self.config.metric.enabled:
            if not self._trains(labels):
                return
        elif not _has_pair(labels):
            raise NoPositivePairError(f"no class has two examples among {len(labels)}: nothing to pull together")
        m, capacity = self.config.memory.replayed_episodes, self.config.memory.stm_capacity
        held = set(labels)
        if self.architecture is not None:
            oldest = self.network_episodes + 1 - m
            held |= {self.labels.label(s.class_id) for s in self.stm.classes if s.episode > oldest}
        if m > 0 and len(held) > capacity:
            raise ConfigError(
                f"memory.stm_capacity of {capacity} cannot hold an example of each of the {len(held)} classes "
                f"of the newest {m} episodes"
            )

    def _accept(self, examples: Tensor, labels: list[Label]) -> Examples:
        """Give labels their ids; the first batch decides on the architecture."""
        if self.architecture is None:
            self.build(tuple(examples.shape[1:]))
        return Examples(examples.clone(), self.labels.ids(labels))  # the caller may use its array again

    def _same_examples(self, x: object, y: LabelLike | None, running: RunningEpisode) -> Examples:
        """The examples of an episode that was saved without them."""
        if x is None or y is None:
            raise EpisodeStateError(f"episode {running.number} was saved without its examples: give them again")
        values, labels = self._validated(x, y)
        examples = Examples(values, torch.tensor([self.labels.find(label) for label in labels]))
        if examples.fingerprint() != running.fingerprint:
            raise InputError(f"these are not the examples that episode {running.number} began with")
        return examples

    def _split(self, count: int) -> tuple[Examples, list[Examples]]:
        """The first `count` pending examples, and the rest."""
        x = torch.cat([part.x for part in self.pending])
        y = torch.cat([part.y for part in self.pending])
        rest = [Examples(x[count:].clone(), y[count:].clone())] if count < len(y) else []
        return Examples(x[:count].clone(), y[:count].clone()), rest

    def _forget_pending(self, class_id: int) -> None:
        ids = torch.cat([part.y for part in self.pending]) if self.pending else torch.zeros(0, dtype=torch.int64)
        bounds = torch.tensor([0, *self.found]).cumsum(0).tolist()
        lengths = [int((ids[a:b] != class_id).sum()) for a, b in zip(bounds, bounds[1:], strict=False)]
        self.found = [length for length in lengths if length]
        self.pending = [kept for part in self.pending if len((kept := _without(part, class_id)).y)]

    def _forget_in_progress(self, running: RunningEpisode, examples: Examples, class_id: int) -> None:
        kept = examples.y != class_id
        if running.knowledge is not None:
            running.knowledge, running.outdated = _folded(running.knowledge.forget(class_id)), True
        if bool(kept.all()):
            return
        rest = examples.y[kept].tolist()
        if not _has_pair(rest) if self.knowledge is None else not rest or not self._trains(rest) and running.trains:
            self.abandon_episode()
            return
        if running.features is not None:
            running.features = running.features[kept.to(running.features.device)]
        place = kept.cumsum(0) - 1
        running.heldout = place[running.heldout[kept[running.heldout]]]
        running.examples = _without(examples, class_id)
        running.fingerprint = running.examples.fingerprint()

    def _random_copy(self) -> torch.Generator:
        return torch.Generator().set_state(self.generator.get_state())

    def _require_no_episode(self) -> None:
        if self.running is not None:
            raise EpisodeStateError(f"episode {self.running.number} is in progress: resume or abandon it first")

    def _require_running(self) -> RunningEpisode:
        if self.running is None:
            raise EpisodeStateError("no episode is in progress")
        return self.running


def _without_sources(config: ArchitectureConfig) -> ArchitectureConfig:
    """Without the places that weights were read from."""
    backbone = None if config.backbone is None else replace(config.backbone, weights=None)
    return replace(config, backbone=backbone, pretrained=None)


def _folded(knowledge: Knowledge) -> Knowledge:
    return replace(knowledge, semantic=knowledge.semantic.folded())


def _without(examples: Examples, class_id: int) -> Examples:
    kept = examples.y != class_id
    return Examples(examples.x[kept], examples.y[kept])


def _has_pair(labels: Sequence[Label]) -> bool:
    return len(set(labels)) < len(labels)
