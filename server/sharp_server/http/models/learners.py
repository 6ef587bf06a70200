"""A learner: what it is, what it knows, and what it is doing."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from sharp_server.http.models.base import Answer, Count, Label, LabelKind, Question, UnsignedInteger, Version
from sharp_server.http.models.quality import ClassQuality, QualityReport


class RankCount(Answer):
    """Units of one rank."""

    rank: Count = Field(description="0: idle, 1: in training, 2 and more: episodes ago, plus one.")
    units: Count


class Layer(Answer):
    """One layer of the network."""

    name: str
    before_cut: bool
    pretrained: bool
    units: Count
    idle: Count
    training: Count
    fine_tuning: Count
    frozen: Count
    ranks: list[RankCount]
    connections: Count
    density: float


class Memories(Answer):
    """Both memories."""

    stm_bytes: Count
    stm_bytes_limit: Count
    stm_entries: Count
    ltm_bytes: Count
    ltm_entries: Count
    classes: Count


class Backlog(Answer):
    """What was accepted and is not learned yet."""

    examples: Count
    bytes: Count
    bytes_limit: Count
    episodes_waiting: Count
    episodes_parked: Count
    streams: Count
    lag_examples: Count
    lag_seconds: float
    open_examples: Count = Field(description="In no closed episode yet.")
    uncounted_examples: Count = Field(description="Durable, and not known by answers yet.")
    lessons: Count = Field(description="Not part of a version yet; answers know them.")


class Progress(Answer):
    """How far the trainer is with an episode."""

    phase: Count
    phases: Count
    epoch: Count
    epochs: Count
    loss: float | None
    examples_per_second: float
    seconds_left: float | None
    fraction: float


class Throughput(Answer):
    """Averages over the last ten seconds."""

    examples_ingested_per_second: float
    examples_trained_per_second: float
    examples_predicted_per_second: float


class Status(Answer):
    """A learner at one moment."""

    time: datetime
    state: Literal["idle", "waiting", "training", "changing"]
    model_version: Count = Field(description="The version that serves. 0: nothing was learned yet.")
    episodes_learned: Count
    layers: list[Layer]
    memories: Memories | None
    backlog: Backlog
    training_episode: Count | None
    progress: Progress | None
    throughput: Throughput
    damaged_snapshots: Count
    examples_beyond_version: Count
    examples_known: Count
    quality: QualityReport | None


class Class(Answer):
    """What a learner holds of one class."""

    label: Label
    ltm_entries: Count
    stm_entries: Count
    last_episode: Count
    examples: Count = Field(description="That were learned. 0: not counted.")
    quality: ClassQuality | None
    quality_before: ClassQuality | None = Field(description="The same of the version before.")


class LearnerSummary(Answer):
    """A learner in a list."""

    name: str
    uid: str
    input_shape: list[int] | None
    label_kind: LabelKind | None
    architecture: str
    create_time: datetime
    status: Status = Field(description="Without its layers.")


class Learner(LearnerSummary):
    """Everything about a learner."""

    settings: dict[str, str] = Field(description="Every setting in force, in JSON.")
    classes: list[Class]


class Learners(Answer):
    """A page of the list of learners, by name."""

    learners: list[LearnerSummary]
    next_page_token: str


class Classes(Answer):
    """The classes that answers can name, in the order in which they were met."""

    classes: list[Class]


class NewLearner(Question):
    """A learner to be made; everything but the name may be left out."""

    name: str
    preset: str = ""
    overrides: dict[str, str] = Field(default_factory=dict, description="`section.key` to a value in JSON.")
    input_shape: list[UnsignedInteger] = Field(default_factory=list, max_length=16)
    label_kind: LabelKind | None = None
    seed: Version = 0


class DeletedLearner(Answer):
    """A learner is gone."""

    unlearned_examples: Count
    snapshots: Count
