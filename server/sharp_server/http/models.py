"""What goes over HTTP in JSON: one class for each thing, with the words of the wire.

Labels are texts or integers, as the learner's are; moments are RFC 3339, spans of time are seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_INT64 = 1 << 63

IntegerLabel = Annotated[int, Field(strict=True, ge=-_INT64, lt=_INT64)]
TextLabel = Annotated[str, Field(strict=True)]
Label = IntegerLabel | TextLabel
Count = Annotated[int, Field(ge=0)]
UnsignedInteger = Annotated[int, Field(ge=0, lt=1 << 32)]
Version = Annotated[int, Field(ge=0, lt=_INT64)]
Number = Annotated[float, Field(strict=True)]
LabelKind = Literal["text", "integer"]


class Answer(BaseModel):
    """Whatever is answered."""

    model_config = ConfigDict(ser_json_inf_nan="constants")


class Question(BaseModel):
    """Whatever is asked: what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


# ---- a learner ------------------------------------------------------------------------------------------------------


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


class ClassQuality(Answer):
    """How the held-out examples of one class are answered."""

    label: Label
    examples: Count
    right: Count


class Confusion(Answer):
    """Held-out examples of one class that were answered with another."""

    label: Label
    answered: Label
    examples: Count


class Quality(Answer):
    """How good a version is, on examples that it answers as if it had never learned them."""

    model_version: Count
    create_time: datetime
    examples: Count
    right: Count
    classes: list[ClassQuality] = Field(description="Worst first.")
    confusions: list[Confusion] = Field(description="Most frequent first.")


class ClassFall(Answer):
    """A class that got worse from one version to the next."""

    before: ClassQuality
    now: ClassQuality


class QualityReport(Answer):
    """A version beside the one before it."""

    quality: Quality | None
    before: Quality | None
    fallen: list[ClassFall] = Field(description="By more than chance explains, worst first.")


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


class ForgetRequest(Question):
    """A class to be forgotten."""

    label: Label
    older_snapshots: Literal["keep", "delete"] = "keep"


# ---- versions and names of classes ----------------------------------------------------------------------------------


class Qualities(Answer):
    """A page of the list of versions that were measured, newest first."""

    qualities: list[Quality]
    next_page_token: str


class UndoRequest(Question):
    """A version to be undone: the one that serves."""

    model_version: Version = Field(default=0, description="0: whichever serves.")
    preview: bool = Field(default=False, description="Whether only to say what would be undone.")


class Undone(Answer):
    """The version before serves again, or would."""

    model_version: Count
    undone_model_version: Count
    restored_model_version: Count
    cause: str = Field(description="What had made the version that was undone.")
    episodes_undone: Count
    episodes_waiting: Count
    classes_forgotten: list[Label]


class RenameRequest(Question):
    """Another name for a class."""

    label: Label
    new_label: Label


class MergeRequest(Question):
    """Two classes that are one."""

    source: Label
    target: Label


class Relabelled(Answer):
    """The class has its new name."""

    model_version: Count
    journal_examples: Count
    snapshots_holding: list[Snapshot]


# ---- snapshots ------------------------------------------------------------------------------------------------------


class Snapshot(Answer):
    """A learner as it was at one version."""

    id: str
    model_version: Count
    episodes_learned: Count
    classes: list[Label]
    origin: Literal["automatic", "requested", "imported"]
    create_time: datetime
    size_bytes: Count
    sha256: str
    note: str
    damaged: bool


class Snapshots(Answer):
    """A page of the list of snapshots, newest first."""

    snapshots: list[Snapshot]
    next_page_token: str


class NewSnapshot(Question):
    """A snapshot to be made."""

    note: str = ""


class DeletedSnapshot(Answer):
    """A snapshot is gone."""

    size_bytes: Count


class RestoreRequest(Question):
    """How a snapshot is restored."""

    with_forgotten: bool = Field(default=False, description="Whether classes forgotten since then come back.")


class Restored(Answer):
    """The learner is what it was."""

    model_version: Count
    previous_model_version: Count
    episodes_undone: Count
    classes_forgotten: list[Label]


class Forgotten(Answer):
    """A class is gone."""

    model_version: Count
    ltm_entries: Count
    stm_entries: Count
    journal_examples: Count
    discarded_episodes: list[int]
    snapshots_holding: list[Snapshot]
    snapshots_deleted: list[Snapshot]


# ---- episodes -------------------------------------------------------------------------------------------------------


class ParkedEpisode(Answer):
    """An episode that could not be learned."""

    episode: Count
    stream_id: str
    reason: str
    detail: str
    attempts: Count
    park_time: datetime
    examples: Count
    size_bytes: Count
    classes: list[Label]


class ParkedEpisodes(Answer):
    """A page of the list of parked episodes, by number."""

    episodes: list[ParkedEpisode]
    next_page_token: str


class Retried(Answer):
    """A parked episode waits again."""

    episodes_ahead: Count


class Discarded(Answer):
    """A parked episode is gone."""

    examples: Count


class Event(Answer):
    """Something that happened to an episode."""

    id: Count
    episode: Count
    time: datetime
    kind: Literal["closed", "started", "learned", "parked", "discarded"]
    examples: Count | None = None
    classes: list[Label] | None = None
    new_classes: list[Label] | None = None
    phases: Count | None = None
    model_version: Count | None = None
    seconds: float | None = None
    reason: str | None = None
    detail: str | None = None


# ---- predictions ----------------------------------------------------------------------------------------------------


class PredictRequest(Question):
    """Vectors, and what to say about them."""

    vectors: list[list[Number]] = Field(min_length=1)
    top_k: UnsignedInteger = 0
    nearest_memories: UnsignedInteger = 0
    novelty: bool = False
    min_model_version: Version = 0
    min_examples: Version = 0


class ClassScore(Answer):
    """How well one class fits."""

    label: Label
    vote_share: float
    distance: float


class NearMemory(Answer):
    """One memory near an example."""

    label: Label
    episode: Count
    distance: float


class Prediction(Answer):
    """The answer for one example."""

    label: Label
    vote_share: float
    distance: float
    novelty: float | None = Field(description="0 to 1; null: not asked for.")
    top_classes: list[ClassScore]
    nearest_memories: list[NearMemory]


class Predictions(Answer):
    """The answers, in the order of the examples."""

    predictions: list[Prediction]
    model_version: Count
    examples_beyond_version: Count = Field(description="Known beyond the version: taught, or come and counted.")
    episodes_learned: Count
    seconds_in_queue: float
    seconds_in_compute: float


# ---- lessons --------------------------------------------------------------------------------------------------------


class TeachRequest(Question):
    """Labelled vectors, and a name of the caller's own for the lesson."""

    request_id: str = Field(description="Unique within the learner; a random UUID will do.")
    vectors: list[list[Number]] = Field(min_length=1)
    labels: list[Label] = Field(min_length=1, description="One for each vector.")


class Lesson(Answer):
    """What was taught is durable, and answers know it."""

    model_version: Count
    examples_beyond_version: Count
    examples_known: Count = Field(description="Give it as `min_examples` to a prediction that must know this lesson.")
    examples: Count
    new_classes: list[Label]
    corrections: Count = Field(description="Examples that were answered wrong before.")
    repetition: bool = Field(description="Whether a lesson of this id was known already.")


# ---- the server -----------------------------------------------------------------------------------------------------


class Access(Answer):
    """What a caller may do."""

    version: str = Field(description="Of the software.")
    token_needed: bool
    roles: list[Literal["predict", "learn", "admin"]] = Field(description="Those of the token that came.")


class Trainer(Answer):
    """The process that trains."""

    running: bool
    restarts: Count
    learner: str
    episode: Count
    memory_bytes: Count


class ServerStatus(Answer):
    """How the server is."""

    version: str
    start_time: datetime
    state: Literal["starting", "serving", "stopping"]
    learners: Count
    trainer: Trainer
    data_bytes: Count
    free_bytes: Count
    corruption_events: Count
    device: str
