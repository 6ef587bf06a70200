"""What the front and the teacher say to each other: one frozen dataclass per message, through one socket.

    front → teacher   Begin, Teach, TeachAgain, GetKnown, Save, Forget
    teacher → front   Ready, then one answer to each, in their order: Begun, Lessons, Judged, Known, Saved, Done,
                      or Refused

`TeacherDiedError` is what whoever waits for an answer gets when the socket breaks. Both ends are the same version of
this file: the front starts the teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sharp_engine import Label, LearnerConfig, Predictor, Quality
from sharp_server.prediction.summary import Summary
from sharp_server.storage.records import Beyond

Examples = NDArray[Any]


@dataclass(frozen=True)
class BaseVersion:
    """The file of a version that something is learned or taught on top of."""

    path: Path
    sha256: bytes


@dataclass(frozen=True)
class Taken:
    """What arrived at one place: a lesson or a batch."""

    place: int
    lesson: bool
    x: Examples
    labels: Sequence[Label]


# ---- front → teacher ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """Load a version, or make a new learner, to be taught under this number."""

    learner: int
    """Never used again, not even for the same learner."""
    base: BaseVersion | None
    """Absent: a new learner."""
    config: LearnerConfig
    """Of a new learner."""
    classes: tuple[Label, ...] | None
    """Of the version, in its summary's order; absent: the teacher is to find out, and to answer with a summary."""


@dataclass(frozen=True)
class Teach:
    """Teach lessons, and say what is known then."""

    learner: int
    lessons: tuple[Taken, ...]


@dataclass(frozen=True)
class TeachAgain:
    """Teach arrivals from the journal."""

    learner: int
    items: tuple[Beyond, ...]
    input_shape: tuple[int, ...]
    labels: dict[int, Label]
    """By ordinal."""
    judged: frozenset[int]
    """Places of lessons of which somebody waits to hear how many examples were answered wrong before."""


@dataclass(frozen=True)
class GetKnown:
    """Say what is known."""

    learner: int


@dataclass(frozen=True)
class Save:
    """Write what can become a version by itself: the version, and the lessons that came before any batch."""

    learner: int
    path: Path
    first: int
    """Place of the first lesson that is no part of a version: if it is not among those, nothing is written."""


@dataclass(frozen=True)
class Forget:
    """Let go of a learner."""

    learner: int


Request = Begin | Teach | TeachAgain | GetKnown | Save | Forget


# ---- teacher → front ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The teacher takes work."""

    pid: int


@dataclass(frozen=True)
class Begun:
    """The learner can be taught."""

    summary: Summary | None
    """Of the version, where it was asked for and there is one."""


@dataclass(frozen=True)
class Known:
    """What answers know at one moment."""

    predictor: Predictor | None
    """Absent if no class is known."""
    summary: Summary | None
    """Of everything known, where it has other classes than the version."""


@dataclass(frozen=True)
class Lessons:
    """What became of lessons."""

    outcomes: tuple[int | Exception, ...]
    """How many examples of each were answered wrong before, or why it can't be taught."""
    known: Known


@dataclass(frozen=True)
class Judged:
    """Arrivals were taught."""

    wrong: dict[int, int]
    """By place: examples that were answered wrong before."""


@dataclass(frozen=True)
class Saved:
    """A file was written that can become a version."""

    until: int
    """Place of the last lesson that it holds."""
    summary: Summary
    quality: Quality | None
    sha256: bytes
    """Of the file."""


@dataclass(frozen=True)
class Done:
    """There is nothing to be said of it."""


@dataclass(frozen=True)
class Refused:
    """It could not be done."""

    error: Exception


Answer = Begun | Known | Lessons | Judged | Saved | Done


class TeacherDiedError(RuntimeError):
    """The teacher died before it answered, or had forgotten the learner by dying before."""

    def __init__(self, at_work: bool) -> None:
        """`at_work`: whether it was at this very request."""
        super().__init__("the teaching process died" if at_work else "the teaching process was started again")
        self.at_work = at_work
