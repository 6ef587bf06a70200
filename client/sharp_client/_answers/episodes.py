"""What becomes of episodes, and the answers about those that could not be learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sharp.v1 import episode_pb2, parked_pb2

from .._labels import Label
from .decoding import Answer
from .quality import QualityReport
from .statistics import LayerStatistics, MemoryStatistics


@dataclass(frozen=True, repr=False)
class EpisodeClosed(Answer, message=episode_pb2.EpisodeClosed):
    """An episode is complete and durable."""

    closed_by: str = ""
    """What ended it: "mark" (the producer), "cut" (the server found a change) or "size" (the server's limit)."""
    first_sequence: int = 0
    """Sequence number of the batch with its first example."""
    last_sequence: int = 0
    """Sequence number of the batch with its last example, or of the mark that ended it."""
    last_batch_examples: int = 0
    """How many examples of the last batch belong to it, where a cut fell inside that batch. 0: all."""
    examples: int = 0
    """Examples it holds."""
    classes: int = 0
    """Classes it holds."""
    episodes_ahead: int = 0
    """Episodes of the learner that are learned before it."""


@dataclass(frozen=True, repr=False)
class EpisodeStarted(Answer, message=episode_pb2.EpisodeStarted):
    """The trainer began to learn an episode, or continued after a restart."""

    attempt: int = 0
    """Which attempt this is, from 1."""
    attempts: int = 0
    """After how many failed attempts it is parked."""
    phase: int = 0
    """The phase it starts with, from 1."""
    phases: int = 0
    """Phases in all."""
    examples: int = 0
    """Examples it holds."""


@dataclass(frozen=True, repr=False)
class Progress(Answer, message=episode_pb2.Progress):
    """How far the trainer is with an episode."""

    phase: int = 0
    """The current phase, from 1. 0: not begun yet."""
    phases: int = 0
    """Phases in all."""
    epoch: int = 0
    """The current epoch of this phase, from 1. 0: not begun yet."""
    epochs: int = 0
    """Epochs of this phase."""
    loss: float | None = None
    """Mean loss of the epoch so far. None: before the first step."""
    examples_per_second: float = 0.0
    """Stream examples through training per second, counting each epoch. 0: not known yet."""
    time_left: float | None = None
    """Estimated seconds until the episode is learned. None: nothing to estimate from yet."""
    fraction: float = 0.0
    """Share of the episode's work that is done, 0 to 1."""


@dataclass(frozen=True, repr=False)
class EpisodeStatistics(Answer, message=episode_pb2.EpisodeStatistics):
    """What learning an episode did to the learner."""

    examples: int = 0
    """Examples it was learned from."""
    classes: tuple[Label, ...] = ()
    """Its classes."""
    new_classes: tuple[Label, ...] = ()
    """Those that the learner did not know before."""
    phase_losses: tuple[float, ...] = ()
    """Mean loss of each phase."""
    training_time: float = 0.0
    """Seconds of training."""
    examples_per_second: float = 0.0
    """Mean of `Progress.examples_per_second`."""
    layers: tuple[LayerStatistics, ...] = field(default=(), repr=False)
    """The layers after it, in order from the input."""
    memories: MemoryStatistics = field(default_factory=MemoryStatistics, repr=False)
    """The memories after it."""
    recruited: Mapping[str, int] = field(default_factory=dict)
    """Units that left the idle state for it, by name of the layer."""
    quality: QualityReport | None = field(default=None, repr=False)
    """How good the version is, beside the version before. None: not known."""


@dataclass(frozen=True, repr=False)
class EpisodeLearned(Answer, message=episode_pb2.EpisodeLearned):
    """An episode is learned: its version serves, its raw examples are deleted."""

    model_version: int = 0
    """The version that holds it."""
    statistics: EpisodeStatistics | None = None
    """What learning it did. None: no longer known."""
    episodes_learned: int = 0
    """Episodes that this version has learned."""


@dataclass(frozen=True, repr=False)
class EpisodeParked(Answer, message=episode_pb2.EpisodeParked):
    """An episode could not be learned and waits for an operator."""

    reason: str = ""
    """Why, as in "non_finite_loss", "out_of_memory", "no_positive_pair": see ParkReason in `episode.proto`."""
    detail: str = ""
    """The same in one sentence."""
    attempts: int = 0
    """Attempts made."""


@dataclass(frozen=True, repr=False)
class EpisodeDiscarded(Answer, message=episode_pb2.EpisodeDiscarded):
    """An episode will never be learned; its examples are deleted."""

    reason: str = ""
    """Why: "operator", "forgotten" or "learner_deleted"."""


@dataclass(frozen=True, repr=False)
class EpisodeEvent(Answer, message=episode_pb2.EpisodeEvent):
    """Something that happened to an episode. One of the last six fields is set, unless the server is newer."""

    episode: int = 0
    """Number of the episode."""
    time: datetime | None = None
    """When it happened."""
    closed: EpisodeClosed | None = None
    """It is complete and waits for the trainer."""
    started: EpisodeStarted | None = None
    """The trainer began to learn it."""
    progress: Progress | None = None
    """The trainer made progress."""
    learned: EpisodeLearned | None = None
    """It is learned."""
    parked: EpisodeParked | None = None
    """It could not be learned."""
    discarded: EpisodeDiscarded | None = None
    """It will not be learned."""


@dataclass(frozen=True, repr=False)
class ParkedEpisode(Answer, message=parked_pb2.ParkedEpisode):
    """An episode that could not be learned. Its examples are kept until an operator retries or discards it."""

    episode: int = 0
    """Number of the episode."""
    stream_id: str = ""
    """The stream it came from."""
    parked: EpisodeParked = field(default_factory=EpisodeParked)
    """Why, and after how many attempts."""
    park_time: datetime | None = None
    """When it was parked."""
    examples: int = 0
    """Examples it holds."""
    size_bytes: int = 0
    """Bytes they take."""
    classes: tuple[Label, ...] = ()
    """Its classes."""


@dataclass(frozen=True, repr=False)
class RetriedEpisode(Answer, message=parked_pb2.RetryParkedEpisodeResponse):
    """A parked episode waits for the trainer again."""

    episodes_ahead: int = 0
    """Episodes of the learner that are learned before it."""


@dataclass(frozen=True, repr=False)
class DiscardedEpisode(Answer, message=parked_pb2.DiscardParkedEpisodeResponse):
    """A parked episode is gone."""

    examples: int = 0
    """Examples that were deleted."""
