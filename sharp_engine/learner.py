"""The learner: a network, its two memories, and the stream it learns from.

It must never lose what it was promised to keep: every call either completes or raises and leaves the learner as it was
(an episode that fails or is cancelled: as it was at the end of its last phase). One thread may learn while others use
`predictor`, which is immutable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from sharp_engine.config import LearnerConfig
from sharp_engine.device import resolve_device
from sharp_engine.errors import (
    ConfigError,
    EmptyEpisodeError,
    EpisodeStateError,
    InputError,
    LabelError,
    NoPositivePairError,
    NothingLearnedError,
)
from sharp_engine.inputs import as_examples
from sharp_engine.inspection import Inspection, inspect_layer
from sharp_engine.labels import Label, LabelLike, Labels, as_labels
from sharp_engine.memory.long_term import LongTermMemory
from sharp_engine.memory.short_term import ShortTermMemory
from sharp_engine.network.architecture import Architecture, Normaliser, resolve_architecture
from sharp_engine.network.backbone import build_backbone, feature_shape
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.state import Network, build
from sharp_engine.prediction.predictor import Predictions, Predictor
from sharp_engine.stream.segmenter import Segmenter
from sharp_engine.training.episode import EpisodeTrainer, Examples, RunningEpisode, consolidate, hold_out
from sharp_engine.training.pretraining import freeze_pretrained, load_pretrained
from sharp_engine.training.progress import Cancel, EpisodeReport, Observer, Reporter


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
        """What was settled; absent until the input shape is known."""
        self.labels = Labels()
        self.episodes = 0
        """How many episodes were learned."""
        self.generator = torch.Generator().manual_seed(self.config.seed)
        """All of the learner's random numbers."""
        self.ltm = LongTermMemory()
        self.running: RunningEpisode | None = None
        """The episode in progress, as it stands at the end of a phase."""
        self.pending: list[Examples] = []
        """Observed, not yet learned."""
        self.found: list[int] = []
        """Lengths of the complete episodes at the head of `pending`."""
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
        config, device = self.config.architecture, self.device
        architecture = resolve_architecture(config, input_shape)
        normaliser = Normaliser(config, input_shape, device)
        features = input_shape
        if config.backbone is not None:
            backbone = backbone or build_backbone(config.backbone, device)
            features = feature_shape(backbone, input_shape, device)
        # Nothing is drawn from the learner's own before everything fits.
        generator = self._random_copy() if load_weights else None
        m = self.config.memory.replayed_episodes
        network = build(architecture, config.density, config.fan_in, m, features, generator, device)
        if config.pretrained is not None:
            freeze_pretrained(network)
            if load_weights:
                load_pretrained(network, config.pretrained)
        memory = self.config.memory
        self.preprocessor = Preprocessor(normaliser, device, backbone)
        self.network: Network = network
        self.stm = ShortTermMemory(network.cut_shape, memory.stm_capacity, memory.stm_share)
        self.segmenter = Segmenter(self.config.stream, int(torch.tensor(input_shape).prod()), self.config.seed)
        if generator is not None:
            self.generator.set_state(generator.get_state())
        self.architecture = architecture

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
        """Take some examples of a stream. With found boundaries, learn every episode that is now complete."""
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
                if not _has_pair(episode.y.tolist()):  # too thin to learn from: it joins the next one
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
        phases = self.config.training.phases
        trainer = EpisodeTrainer(
            self.preprocessor, self.config, running.examples, running.heldout, self.network, self.stm
        )
        epochs, steps = trainer.epochs(self.config.training)
        reporter = Reporter(observer, cancel, running.number, phases, running.seconds, epochs)
        reporter.phase, reporter.steps_left = running.phases_done, (phases - running.phases_done) * epochs * steps
        reporter.tell("episode-started", self.network)
        while running.phases_done < phases:
            self._learn_phase(running, trainer, reporter)
        return self._finish(running, trainer, reporter)

    def abandon_episode(self) -> None:
        """Give up the episode in progress: its examples are dropped and the learner is as before it began."""
        running = self._require_running()
        self.network = running.before
        self.generator.set_state(running.random_before)
        self.running = None
        held = {memory.class_id for memory in self.ltm.classes} | {stored.class_id for stored in self.stm.classes}
        self.labels.keep(held.union(*(part.y.tolist() for part in self.pending)))

    def _begin(self, examples: Examples) -> None:
        random_before = self.generator.get_state()
        heldout = hold_out(examples.y, self.config.memory.holdout, self.generator)
        self.running = RunningEpisode(
            self.episodes + 1, examples, examples.fingerprint(), heldout, self.network.copy(), random_before
        )

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

    def _finish(self, running: RunningEpisode, trainer: EpisodeTrainer, reporter: Reporter) -> EpisodeReport:
        reporter.check_cancelled()
        assert running.examples is not None
        known = {memory.class_id for memory in self.ltm.classes}
        network, generator = self.network.copy(), self._random_copy()
        after = consolidate(
            network, trainer, running, self.stm, self.ltm, self.labels, self.config, self.preprocessor, generator
        )
        self.network, self.stm, self.ltm, self._predictor = after.network, after.stm, after.ltm, after.predictor
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
        reporter.tell("episode-learned", self.network)
        return report

    # ---- prediction ---------------------------------------------------------------------------------------------

    @property
    def predictor(self) -> Predictor:
        """What answers for the episodes learned so far; safe to use from other threads while this learner learns."""
        if self._predictor is None:
            if self.architecture is None:
                raise NothingLearnedError("nothing was learned yet: there is no class to name")
            network = self.network if self.running is None else self.running.before
            self._predictor = Predictor(self.preprocessor, network, self.ltm, self.labels, self.config.prediction)
        return self._predictor

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
        """Remove a class from both memories and from everything not yet learned. The others stay as they are."""
        class_id = self.labels.find(label)
        running = self.running
        if running is not None and running.examples is None:
            raise EpisodeStateError("the episode in progress was loaded without its examples: give them, or abandon it")
        self._forget_pending(class_id)
        if self.architecture is not None:
            self.segmenter.forget(class_id)
            self.stm = self.stm.forget(class_id)
        self.ltm = self.ltm.forget(class_id)
        self.labels.remove(label)
        if running is not None and running.examples is not None:
            self._forget_in_progress(running, running.examples, class_id)
        self._predictor = None

    def inspect(self) -> Inspection:
        """The learner in figures."""
        built = self.architecture is not None
        return Inspection(
            architecture=self.architecture.describe() if self.architecture is not None else "",
            device=str(self.device),
            episodes=self.episodes,
            classes=tuple(self.labels.label(memory.class_id) for memory in self.ltm.classes),
            layers=tuple(inspect_layer(layer) for layer in self.network.layers) if built else (),
            stm_bytes=self.stm.nbytes if built else 0,
            stm_overhead_bytes=self.stm.overhead if built else 0,
            stm_budget_bytes=self.stm.budget if built else 0,
            stm_examples=self.stm.examples if built else 0,
            ltm_bytes=self.ltm.nbytes,
            ltm_entries=self.ltm.entries,
            pending_examples=self.pending_examples,
            phases_done=None if self.running is None else self.running.phases_done,
        )

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
        if not _has_pair(labels):
            raise NoPositivePairError(f"no class has two examples among {len(labels)}: nothing to pull together")
        m, capacity = self.config.memory.replayed_episodes, self.config.memory.stm_capacity
        held = set(labels)
        if self.architecture is not None:
            held |= {self.labels.label(s.class_id) for s in self.stm.classes if s.episode > self.episodes + 1 - m}
        if m > 0 and len(held) > capacity:
            raise ConfigError(
                f"memory.stm_capacity of {capacity} cannot hold an example of each of the {len(held)} classes "
                f"of the newest {m} episodes"
            )

    def _accept(self, examples: Tensor, labels: list[Label]) -> Examples:
        """Give labels their ids; the first batch settles the architecture."""
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
        if bool(kept.all()):
            return
        if not _has_pair(examples.y[kept].tolist()):
            self.abandon_episode()
            return
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


def _without(examples: Examples, class_id: int) -> Examples:
    kept = examples.y != class_id
    return Examples(examples.x[kept], examples.y[kept])


def _has_pair(labels: Sequence[Label]) -> bool:
    return len(set(labels)) < len(labels)
