"""Learners: what they are, what they are doing, and what deleting or forgetting did to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sharp.v1 import learner_admin_pb2, learner_pb2, learning_pb2

from .._labels import Label
from .decoding import Answer
from .episodes import EpisodeEvent, Progress
from .quality import ClassQuality, QualityReport
from .snapshots import Snapshot
from .statistics import LayerStatistics, MemoryStatistics


@dataclass(frozen=True, repr=False)
class LearnerConfig(Answer, message=learner_pb2.LearnerConfig):
    """The configuration a learner was created with."""

    preset: str = ""
    """A named set of settings. Empty: "default"."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Single settings on top of the preset: "section.key" to a value in JSON."""
    input_shape: tuple[int, ...] = ()
    """Shape of one example. Empty: taken from the first batch."""
    label_kind: str = ""
    """Kind of labels: "text", "integer", or empty if taken from the first batch."""
    seed: int = 0
    """Seed of everything random in the learner."""


@dataclass(frozen=True, repr=False)
class ClassSummary(Answer, message=learner_pb2.ClassSummary):
    """What a learner holds of one class."""

    label: Label = ""
    """The class."""
    ltm_entries: int = 0
    """Its representations in the long-term memory."""
    stm_entries: int = 0
    """Its examples in the short-term memory. 0: no longer replayed."""
    last_episode: int = 0
    """The latest learned episode that held it."""
    examples: int = 0
    """Examples of it that were learned. 0: not counted."""
    quality: ClassQuality | None = None
    """How its held-out examples are answered. None: it has none."""
    quality_before: ClassQuality | None = None
    """The same of the version before."""


@dataclass(frozen=True, repr=False)
class Backlog(Answer, message=learner_pb2.Backlog):
    """What a learner has accepted and not learned yet."""

    examples: int = 0
    """Examples on disk, those of parked episodes not counted."""
    bytes: int = 0
    """Bytes they take towards the limit, parked ones included."""
    bytes_limit: int = 0
    """At this many bytes the server stops reading."""
    episodes_waiting: int = 0
    """Closed episodes not learned yet, the one in training included."""
    episodes_parked: int = 0
    """Parked episodes."""
    streams: int = 0
    """Learn streams that are open right now."""
    lag_examples: int = 0
    """How far training is behind: examples of closed episodes not learned yet."""
    lag: float = 0.0
    """The same in seconds, since the oldest of those episodes was closed."""
    open_examples: int = 0
    """Examples that wait for a boundary: in no closed episode yet."""
    uncounted_examples: int = 0
    """Durable examples that answers don't know yet. 0: everything that came is known."""
    lessons: int = 0
    """Lessons (`teach`) that are not part of a version yet; answers know them."""


@dataclass(frozen=True, repr=False)
class TeachResult(Answer, message=learning_pb2.TeachResponse):
    """A lesson that is durable, and that answers know."""

    model_version: int = 0
    """The version that serves. 0: none yet."""
    examples_beyond_version: int = 0
    """Examples that are known beyond that version."""
    examples_known: int = 0
    """Examples that the learner knows in all, this lesson included: give it to `predict` as `min_examples`."""
    examples: int = 0
    """Examples of this lesson."""
    new_classes: tuple[Label, ...] = ()
    """Classes of this lesson that the learner had never met before, or had forgotten."""
    corrections: int = 0
    """Examples of this lesson that were answered wrong before."""
    repetition: bool = False
    """Whether a lesson of this id was known already, so that the call changed nothing."""


@dataclass(frozen=True, repr=False)
class Throughput(Answer, message=learner_pb2.Throughput):
    """Rates, each an average over the last ten seconds."""

    examples_ingested_per_second: float = 0.0
    """Examples made durable."""
    examples_trained_per_second: float = 0.0
    """Examples passed through training, counting each epoch."""
    examples_predicted_per_second: float = 0.0
    """Examples predicted."""


@dataclass(frozen=True, repr=False)
class LearnerStatus(Answer, message=learner_pb2.LearnerStatus):
    """A learner at one moment."""

    time: datetime | None = None
    """The moment, by the server's clock."""
    state: str = ""
    """What it is busy with: "idle", "waiting", "training" or "changing"."""
    model_version: int = 0
    """The version that serves. 0: nothing was learned yet."""
    episodes_learned: int = 0
    """Episodes that this version has learned."""
    layers: tuple[LayerStatistics, ...] = field(default=(), repr=False)
    """The layers of the network, in order from the input."""
    memories: MemoryStatistics = field(default_factory=MemoryStatistics)
    """The two memories."""
    backlog: Backlog = field(default_factory=Backlog)
    """What is not learned yet."""
    training_episode: int = 0
    """The episode being learned. 0: none."""
    progress: Progress | None = None
    """How far that is. None: nothing is being learned."""
    throughput: Throughput = field(default_factory=Throughput, repr=False)
    """How fast things go."""
    damaged_snapshots: int = 0
    """Snapshots found damaged since the learner was created."""
    examples_beyond_version: int = 0
    """Examples that answers know beyond the serving version."""
    examples_known: int = 0
    """Examples that the learner knows in all; never falls."""
    quality: QualityReport | None = field(default=None, repr=False)
    """How good the serving version is, beside the version before. None: nothing was learned yet."""


@dataclass(frozen=True, repr=False)
class LearnerInfo(Answer, message=learner_pb2.Learner):
    """All about one learner. Lists leave out `settings`, `classes` and the layers of the status."""

    name: str = ""
    """Its name."""
    uid: str = ""
    """Distinguishes it from a later learner of the same name."""
    config: LearnerConfig = field(default_factory=LearnerConfig, repr=False)
    """The configuration as it was given."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every setting in force: "section.key" to its value in JSON."""
    input_shape: tuple[int, ...] = ()
    """Shape of one example. Empty: not known yet."""
    label_kind: str = ""
    """Kind of labels: "text" or "integer". Empty: not known yet."""
    create_time: datetime | None = None
    """When it was created."""
    status: LearnerStatus = field(default_factory=LearnerStatus)
    """What it is doing."""
    classes: tuple[ClassSummary, ...] = field(default=(), repr=False)
    """The classes it knows, in the order in which it met them."""
    architecture: str = ""
    """The architecture in one line. Empty: not decided yet."""


@dataclass(frozen=True, repr=False)
class LearnerUpdate(Answer, message=learner_admin_pb2.WatchLearnerResponse):
    """A watched learner after a change."""

    status: LearnerStatus = field(default_factory=LearnerStatus)
    """All of its status."""
    events: tuple[EpisodeEvent, ...] = ()
    """What happened to its episodes since the update before."""


@dataclass(frozen=True, repr=False)
class DeletedLearner(Answer, message=learner_admin_pb2.DeleteLearnerResponse):
    """A learner is gone."""

    unlearned_examples: int = 0
    """Examples that were accepted, not learned, and are lost."""
    snapshots: int = 0
    """Snapshots that were deleted with it."""


@dataclass(frozen=True, repr=False)
class ForgottenClass(Answer, message=learner_admin_pb2.ForgetClassResponse):
    """A class is forgotten."""

    model_version: int = 0
    """The version that serves, which no longer knows the class."""
    ltm_entries: int = 0
    """Representations removed from the long-term memory."""
    stm_entries: int = 0
    """Examples removed from the short-term memory."""
    journal_examples: int = 0
    """Examples removed before they were learned."""
    discarded_episodes: tuple[int, ...] = ()
    """Episodes that had no other class and were discarded."""
    snapshots_holding: tuple[Snapshot, ...] = ()
    """Older snapshots that still hold the class, newest first."""
    snapshots_deleted: tuple[Snapshot, ...] = ()
    """Older snapshots that held the class and were deleted, newest first."""


@dataclass(frozen=True, repr=False)
class OpenedStream(Answer, message=learning_pb2.Opened):
    """What the server says when a learn stream is opened."""

    learner_uid: str = ""
    """Which learner it is."""
    last_durable_sequence: int = 0
    """Everything up to this sequence number is durable."""
    open_examples: int = 0
    """Durable examples that are in no closed episode yet."""
    boundaries: str = ""
    """Where episodes end: "explicit" or "automatic"."""
    model_version: int = 0
    """The version that serves. 0: nothing was learned yet."""
    input_shape: tuple[int, ...] = ()
    """Shape of one example. Empty: the first batch decides it."""
    label_kind: str = ""
    """Kind of labels: "text" or "integer". Empty: the first batch decides it."""
    unlearned_bytes: int = 0
    """Bytes that the learner has accepted and not learned yet."""
    unlearned_bytes_limit: int = 0
    """At this many it stops reading."""
    message_bytes_limit: int = 0
    """Bytes of the largest message that the server accepts."""
    batch_examples_limit: int = 0
    """Examples of the largest batch that the server accepts."""
