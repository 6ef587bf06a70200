"""What the front and the trainer say to each other: one frozen dataclass per message, through one pipe.

    front → trainer   Train, Yield, Pause, Drop, Stop
    trainer → front   Ready, then per Train: Started, Progressed, PhaseDone …, and one of Learned, Yielded, Failed,
                      Stopped

`Died` is what the front says to itself when the pipe breaks. Messages hold plain values only: never a tensor, never an
example, never a handle. Both ends are the same version of this file: the front starts the trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sharp_engine import EpisodeReport, Label, LearnerConfig, Quality
from sharp_server.prediction.summary import LayerSummary, Summary
from sharp_server.teaching.protocol import BaseVersion


@dataclass(frozen=True)
class LessonsBefore:
    """The lessons that an episode is learned after: those before its place that are not part of a version yet."""

    learner: int
    """Its id in the journal."""
    place: int
    threads: int
    """That the front teaches with: the trainer does the same, to the same bits."""


@dataclass(frozen=True)
class Job:
    """An episode to be learned."""

    learner: str
    uid: str
    episode: int
    """Its id in the journal."""
    number: int
    base: BaseVersion | None
    """Absent: a new learner."""
    config: LearnerConfig
    """Of a new learner."""
    blurry: bool
    """Whether its stream has no boundaries of its own: idle units are not re-initialised after it."""
    input_shape: tuple[int, ...]
    labels: dict[int, Label]
    """By ordinal."""
    work: Path
    """Folder of half-learned episodes."""
    stem: str
    """Beginning of this episode's files there."""
    out: Path
    """Where the finished version goes."""
    lessons: LessonsBefore | None = None
    """Absent: there are none."""


# ---- front → trainer ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Train:
    """Learn an episode, or go on with it."""

    job: Job


@dataclass(frozen=True)
class Yield:
    """Leave the episode at the end of its phase: another learner waits for its turn."""


@dataclass(frozen=True)
class Pause:
    """Stop the episode at its next step, and wait."""


@dataclass(frozen=True)
class Drop:
    """A learner is being changed or deleted: forget what is kept of an episode that it left."""

    uid: str


@dataclass(frozen=True)
class Stop:
    """Stop the episode at its next step, and end."""


Command = Train | Yield | Pause | Drop | Stop


# ---- trainer → front ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The trainer takes work."""

    pid: int


@dataclass(frozen=True)
class Started:
    """An episode was taken up, in this phase."""

    episode: int
    phase: int
    phases: int
    """Phases in all; 0: the network does not learn it, only the metric does."""


@dataclass(frozen=True)
class Progressed:
    """How far an episode is."""

    episode: int
    phase: int
    phases: int
    epoch: int
    epochs: int
    loss: float | None
    examples: int
    """Trained since the last message like this; an example counts each time it is used."""
    examples_per_second: float
    fraction: float
    """Of the whole episode, 0 to 1."""
    seconds_left: float | None


@dataclass(frozen=True)
class PhaseDone:
    """A phase was finished, and can be gone on from."""

    episode: int
    layers: tuple[LayerSummary, ...]
    file: Path | None
    """From which it can be gone on; absent: the disk has no room for it. It goes when the next phase is finished."""
    sha256: bytes
    """Of the file."""


@dataclass(frozen=True)
class Learned:
    """The finished version is in its place."""

    episode: int
    report: EpisodeReport
    summary: Summary
    quality: Quality | None
    sha256: bytes
    """Of its file."""


@dataclass(frozen=True)
class Yielded:
    """The episode was left at the end of a phase, as asked."""

    episode: int
    in_memory: bool
    """Whether the trainer keeps the learner as it is; else it goes on from the file of that phase."""


@dataclass(frozen=True)
class Failed:
    """The try came to nothing."""

    episode: int
    reason: str
    """A `ParkReason` without its prefix, or DISK_FULL."""
    detail: str
    lasting: bool
    """Whether another try would fail in the same way."""


@dataclass(frozen=True)
class Stopped:
    """The episode was stopped at a step, as asked."""

    episode: int


@dataclass(frozen=True)
class Died:
    """The trainer is gone."""

    detail: str = "the training process died"


Report = Ready | Started | Progressed | PhaseDone | Learned | Yielded | Failed | Stopped
Outcome = Learned | Yielded | Failed | Stopped | Died
