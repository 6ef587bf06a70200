"""What the journal holds, as plain values: what goes in and out of every `interface.Storage`.

They are facts of the past: nothing here has behaviour, reads a file or knows of SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ordinals = NDArray[np.int32]
Blob = bytes  # a field named `bytes` hides the type


@dataclass(frozen=True)
class StreamRow:
    """A stream as it is on disk."""

    id: int
    boundaries: str
    durable: int
    open_examples: int


@dataclass(frozen=True)
class Arrival:
    """A batch to be written."""

    learner: int
    stream: int
    sequence: int
    count: int
    dtype: str
    x: bytes
    y: bytes
    """int32 ordinals of the classes."""
    new_classes: tuple[tuple[int, str], ...]
    """(ordinal, label as JSON) of classes that are not known to be on disk yet."""
    fixes: tuple[str, str] | None
    """(input shape as JSON, kind of labels), where this batch fixes them."""
    cuts: tuple[tuple[int, str], ...] = ()
    """(length, closed by) of episodes that are complete with this batch, in order."""

    @property
    def bytes(self) -> int:
        """What it counts towards the learner's limit."""
        return len(self.x) + len(self.y)


@dataclass(frozen=True)
class EpisodeRow:
    """An episode as it is on disk."""

    id: int
    learner: int
    number: int
    stream: int
    stream_name: str
    boundaries: str
    """Of the stream: EXPLICIT or AUTOMATIC."""
    state: str
    position: int
    closed_by: str
    first_sequence: int
    last_sequence: int
    last_batch_examples: int
    examples: int
    bytes: int
    classes: tuple[str, ...]
    """Labels as JSON."""
    closed: float
    attempts: int
    starts: int
    reason: str
    detail: str
    finished_at: float
    """When it was learned, parked or discarded; 0: it waits."""
    version: int
    episodes_learned: int
    statistics: Blob
    place: int = 0
    """Of its end in the order of the learner's arrivals: lessons before it are learned before it."""
    phase_sha256: Blob = b""
    """Of the object that holds the learner after the newest finished phase; empty: there is none."""


@dataclass(frozen=True)
class BatchSlice:
    """Examples of one batch that lie together in one episode, or are open."""

    dtype: str
    count: int
    y: bytes
    """int32 ordinals of the classes."""
    x: bytes


@dataclass(frozen=True)
class NewLesson:
    """A few labelled examples that are taught at once, to be written."""

    learner: int
    request_id: str
    content: bytes
    """SHA-256 of what was sent: the same id with other content is refused."""
    counted: int
    """Batches up to this place are known before it."""
    count: int
    dtype: str
    x: bytes
    y: bytes
    """int32 ordinals of the classes."""
    new_classes: tuple[tuple[int, str], ...]
    """(ordinal, label as JSON) of classes that are not known to be on disk yet."""
    fixes: tuple[str, str] | None
    """(input shape as JSON, kind of labels), where this lesson fixes them."""

    @property
    def bytes(self) -> int:
        """What it counts towards the learner's limit."""
        return len(self.x) + len(self.y)


@dataclass(frozen=True)
class LessonRow:
    """A lesson as it is on disk; its examples may be part of a version by now."""

    place: int
    content: bytes
    examples: int
    new_classes: tuple[str, ...]
    """Labels as JSON of the classes that the learner met with it."""
    repetition: bool
    """Whether it was there already."""


@dataclass(frozen=True, order=True)
class BeyondKey:
    """Where one stands in the order in which arrivals become known: a batch by its place, a lesson after the batches
    that were counted when it came.
    """

    counted: int = 0
    lesson: int = 0
    """A place; 0: before any lesson there."""


@dataclass(frozen=True)
class Beyond:
    """What arrived at one place and is not part of a version yet: a whole batch, or a lesson."""

    key: BeyondKey
    place: int
    lesson: bool
    slices: tuple[BatchSlice, ...]

    @property
    def examples(self) -> int:
        """How many there are."""
        return sum(piece.count for piece in self.slices)

    @property
    def bytes(self) -> int:
        """What it counts towards the learner's limit."""
        return sum(len(piece.x) + len(piece.y) for piece in self.slices)


@dataclass(frozen=True)
class Forgotten:
    """What forgetting a class removed from the journal."""

    examples: int
    """Of batches and lessons."""
    bytes: int
    """Of batches."""
    open_examples: int
    discarded: tuple[EpisodeRow, ...]


@dataclass(frozen=True)
class LearnerRow:
    """A learner as it is on disk."""

    id: int
    name: str
    uid: str
    config: bytes
    settings: str
    input_shape: str | None
    label_kind: str | None
    created: float
    version: int
    head: int | None
    damaged: int
    next_class: int
    examples: int = 0
    """That ever arrived, forgotten ones included."""


@dataclass(frozen=True)
class NewLearner:
    """A learner to be made."""

    name: str
    uid: str
    config: bytes
    """sharp.v1.LearnerConfig as it was given."""
    settings: str
    """The engine's config, JSON."""
    input_shape: str | None
    """JSON."""
    label_kind: str | None


@dataclass(frozen=True)
class SnapshotRow:
    """A snapshot as it is on disk."""

    id: int
    learner: int
    name: str
    version: int
    episodes: int
    classes: str
    origin: str
    created: float
    size: int
    sha256: bytes
    note: str
    damaged: int
    learned_before: int


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot whose file is in its place."""

    learner: int
    name: str
    version: int
    episodes: int
    classes: str
    """JSON."""
    origin: str
    size: int
    sha256: bytes
    note: str = ""


@dataclass(frozen=True)
class NewVersion:
    """A version that is to serve, with the automatic snapshot that holds it."""

    snapshot: NewSnapshot
    cause: str
    """learned, taught, forgotten, restored, damaged, renamed, merged, undone."""
    keep: int
    """Automatic snapshots to keep."""
    episode: int | None = None
    lessons: int = 0
    """Lessons up to this place are part of it, and their examples go; 0: none are."""
    quality: str | None = None
    """How good it is, JSON; absent: not measured."""
    keep_qualities: int = 100
    """Versions whose quality is kept."""
    holds: int | None = None
    """Of an undone version: the one that came back."""

    @property
    def version(self) -> int:
        """Its number."""
        return self.snapshot.version

    @property
    def episodes(self) -> int:
        """Episodes it has learned."""
        return self.snapshot.episodes


@dataclass(frozen=True)
class VersionRow:
    """A version as it is on disk."""

    version: int
    created: float
    cause: str
    holds: int | None


@dataclass(frozen=True)
class QualityRow:
    """How good a version is."""

    version: int
    created: float
    quality: str
    """JSON."""


@dataclass(frozen=True)
class Relabelling:
    """A class (label as JSON) that gets another name, or becomes part of the class that has it."""

    learner: int
    old: str
    new: str
    merge: bool


@dataclass(frozen=True)
class Published:
    """What recording a version came to."""

    replaced: tuple[str, ...]
    """Names of older automatic snapshots whose files are to be deleted."""
    forgotten: Forgotten | None = None
    """What was removed with a class that was forgotten in the same transaction."""
    relabelled: int = 0
    """Examples that are not learned yet and got another class in the same transaction."""


@dataclass(frozen=True)
class CorruptionEvent:
    """Something that was found damaged on disk, for the operator."""

    learner: str
    """Empty: the journal itself."""
    snapshot: str
    lost_version: int
    serving_version: int
    detail: str
    time: float = 0.0
    """Given by the journal."""


@dataclass(frozen=True)
class OwnerRow:
    """Who may write to a learner, where several servers share a database."""

    learner: int
    name: str
    owner: str
    """Name of a server; empty: nobody."""
    address: str
    """Where its owner is reached."""
    epoch: int
    """Rises with every claim."""


@dataclass(frozen=True)
class Change:
    """Something of a learner that others who read the same database want to hear of."""

    uid: str
    what: str
    """version, lesson, owner or deleted; lost: others may have been missed, so everything is to be looked at."""
    number: int
    """The version, the place of the lesson (0: several changed), or the epoch."""


@dataclass(frozen=True)
class Manifest:
    """Who a learner is, as the file beside its snapshots says."""

    name: str
    config: str
    """sharp.v1.LearnerConfig as it was given, in hex."""
    settings: str
    """The engine's config, JSON."""
    created: float
    forgotten: dict[str, list[str]] = field(default_factory=dict)
    """Label as JSON → names of the snapshots that may still hold it."""
    renamed: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """(Old label, new label, names of the snapshots that hold the old one), in the order in which it happened."""


@dataclass(frozen=True)
class FoundSnapshot:
    """A file of a snapshot, and the learner in it if it is sound."""

    name: str
    origin: str
    version: int
    created: float
    size: int
    sha256: bytes
    episodes: int = 0
    held: tuple[Any, ...] = ()
    """Classes that its memories hold."""
    sound: bool = False


@dataclass(frozen=True)
class FoundLearner:
    """A folder of snapshots that is a learner."""

    uid: str
    manifest: Manifest
    snapshots: tuple[FoundSnapshot, ...]
    """In the order in which they were made."""
    input_shape: str | None
    """JSON."""
    label_kind: str | None
    labels: tuple[Any, ...]

    @property
    def head(self) -> FoundSnapshot | None:
        """The snapshot of the newest version; None: nothing was learned yet."""
        own = [snapshot for snapshot in self.snapshots if snapshot.origin != "imported"]
        return max(own, key=lambda s: (s.version, s.origin == "automatic", s.created), default=None)
