"""The learner: a metric and a network, their memories, and the stream it learns from.

It must never lose what it was promised to keep: every call either completes or raises and leaves the learner as it was
(an episode that fails or is cancelled: as it was at the end of its last phase). One thread may learn while others use
`predictor`, which is immutable.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from sharp_engine import inspection
from sharp_engine.config import ArchitectureConfig, LearnerConfig
from sharp_engine.errors import ConfigError, EmptyEpisodeError, EpisodeStateError, InputError
from sharp_engine.inputs import as_examples
from sharp_engine.inspection import Inspection
from sharp_engine.labels import Label, LabelLike
from sharp_engine.learning import classes, teaching
from sharp_engine.learning.running import abandon, begin, check_episode, has_pair, resume
from sharp_engine.learning.state import LearnerState
from sharp_engine.prediction.answers import Predictions
from sharp_engine.prediction.quality import Quality
from sharp_engine.training.episode import Examples
from sharp_engine.training.progress import Cancel, EpisodeReport, Observer, TeachReport


class Learner(LearnerState):
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

    # ---- episodes -----------------------------------------------------------------------------------------------

    def learn_episode(
        self, x: object, y: LabelLike, *, observer: Observer | None = None, cancel: Cancel | None = None
    ) -> EpisodeReport:
        """Learn one whole episode from examples x (n, *input shape) and their labels y."""
        self.require_no_episode()
        if self.pending:
            raise EpisodeStateError(f"{self.pending_examples} observed examples wait: end their episode first")
        examples, labels = self.validated(x, y)
        check_episode(self, labels)
        begin(self, self.accept(examples, labels))
        return self.resume_episode(observer=observer, cancel=cancel)

    def observe(
        self, x: object, y: LabelLike, *, observer: Observer | None = None, cancel: Cancel | None = None
    ) -> list[EpisodeReport]:
        """Take some examples of a stream. With automatic boundaries, learn every episode that is now complete."""
        self.require_no_episode()
        examples = self.accept(*self.validated(x, y))
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
                if self.knowledge is None and not has_pair(episode.y.tolist()):  # too thin: it joins the next one
                    if len(self.found) == 1:
                        break
                    self.found[:2] = [sum(self.found[:2])]
                    continue
                check_episode(self, [self.labels.label(i) for i in episode.y.tolist()])
                begin(self, episode)
                self.pending, self.found = rest, self.found[1:]
            reports.append(self.resume_episode(observer=observer, cancel=cancel))
        return reports

    def end_episode(self, *, observer: Observer | None = None, cancel: Cancel | None = None) -> EpisodeReport:
        """Learn what was observed since the last boundary as one episode."""
        self.require_no_episode()
        if not self.pending:
            raise EmptyEpisodeError("nothing was observed since the last boundary")
        episode, _ = self._split(self.pending_examples)
        check_episode(self, [self.labels.label(i) for i in episode.y.tolist()])
        begin(self, episode)
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
        return resume(self, x, y, observer, cancel)

    def abandon_episode(self) -> None:
        """Give up the episode in progress: its examples are dropped and the learner is as before it began."""
        abandon(self)

    def _split(self, count: int) -> tuple[Examples, list[Examples]]:
        """The first `count` pending examples, and the rest."""
        x = torch.cat([part.x for part in self.pending])
        y = torch.cat([part.y for part in self.pending])
        rest = [Examples(x[count:].clone(), y[count:].clone())] if count < len(y) else []
        return Examples(x[:count].clone(), y[:count].clone()), rest

    # ---- lessons ------------------------------------------------------------------------------------------------

    def teach(self, x: object, y: LabelLike, *, correct: bool = True) -> TeachReport:
        """Learn labelled examples at once, without an episode: the next prediction names them.

        An example that would be answered wrong is kept as a correction, unless asked not to `correct`: then examples
        count, as those of an episode do, which is right for many of them and costs little. Needs a learned metric, and
        features that are stable already: with a patch dictionary, a first episode must have been learned.
        """
        return teaching.teach(self, x, y, correct)

    # ---- answers ------------------------------------------------------------------------------------------------

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

    def inspect(self) -> Inspection:
        """The learner in figures."""
        return inspection.inspect(self)

    def quality(self) -> Quality | None:
        """How good its answers are, on held-out examples; absent without a learned metric, and while they are few.

        Measured when an episode is learned, and now and then while examples are taught.
        """
        return inspection.quality(self)

    # ---- classes ------------------------------------------------------------------------------------------------

    def forget(self, label: Label) -> None:
        """Remove a class from all memories and from everything not yet learned. The others stay as they are."""
        classes.forget(self, label)

    def rename_class(self, label: Label, new: Label) -> None:
        """Give a class another label, which no other class has. Everything known of it stays, at any time."""
        self.labels.rename(label, new)
        self.changed()

    def merge_classes(self, source: Label, target: Label) -> None:
        """Make one class part of another, as if all its examples had been of the other from the start.

        Exactly so in the learned metric. The network's memories of both are compared on the units that both live on;
        without any, the source's are dropped. If only one of the two is still replayed, the merged class is replayed no
        longer: what is written anew from half of a class would forget the other half.
        """
        classes.merge(self, source, target)

    # ---- settings and snapshots ---------------------------------------------------------------------------------

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

    def wake_network(self) -> None:
        """Let a resting network learn again, from the next episode on."""
        self.require_no_episode()
        if self.knowledge is not None:
            calibration = replace(self.knowledge.calibration, fruitless=0)
            self.knowledge = replace(self.knowledge, calibration=calibration)
            self.changed()

    def save(self, path: str | os.PathLike[str], *, pending: bool = True) -> bytes:
        """Write a snapshot, complete or not at all. `pending` includes raw examples that are not learned yet.

        Gives the SHA-256 of the file as it was meant: whatever happens to it on the way to the disk, and later, shows.
        """
        from sharp_engine.snapshot import save

        return save(self, Path(path), pending)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None, verified: bool = False) -> Learner:
        """Read a snapshot; `device` replaces the one in its config.

        `verified`: the caller has just compared the file's SHA-256 with the one that `save` gave, so its content is not
        hashed once more.
        """
        from sharp_engine.snapshot import load

        return load(Path(path), device, verified)


def _without_sources(config: ArchitectureConfig) -> ArchitectureConfig:
    """Without the places that weights were read from."""
    backbone = None if config.backbone is None else replace(config.backbone, weights=None)
    return replace(config, backbone=backbone, pretrained=None)
