"""The server itself: its state, its trainer, its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sharp.v1 import admin_pb2, server_pb2

from .decoding import Answer


@dataclass(frozen=True, repr=False)
class TrainerStatus(Answer, message=server_pb2.TrainerStatus):
    """The process that trains."""

    running: bool = False
    """Whether it runs. If not, it is being restarted; predictions are answered all the same."""
    restarts: int = 0
    """How often it was restarted since the server started."""
    learner: str = ""
    """The learner it is working on. Empty: none."""
    episode: int = 0
    """The episode it is learning. 0: none."""
    memory_bytes: int = 0
    """Bytes of memory that it takes. 0: not known."""
    threads: int = 0
    """Threads it may use."""
    since: float = 0.0
    """Seconds for which it has been as it is."""


@dataclass(frozen=True, repr=False)
class TeacherStatus(Answer, message=server_pb2.TeacherStatus):
    """The process that teaches what is known at once."""

    running: bool = False
    """Whether it runs. If not, it was not needed yet or is being restarted; predictions are answered all the same."""
    restarts: int = 0
    """How often it was restarted since the server started."""
    memory_bytes: int = 0
    """Bytes of memory that it takes. 0: not known."""
    since: float = 0.0
    """Seconds for which it has been as it is."""


@dataclass(frozen=True, repr=False)
class ServerLimits(Answer, message=server_pb2.Limits):
    """The limits of the server."""

    message_bytes: int = 0
    """Bytes of one message."""
    batch_examples: int = 0
    """Examples of one batch or prediction."""
    unlearned_bytes: int = 0
    """Bytes not yet learned, per learner."""
    learners: int = 0
    """Learners."""
    classes: int = 0
    """Classes, per learner."""
    streams: int = 0
    """Streams open at the same time, of all kinds."""
    prediction_queue: int = 0
    """Examples that wait for prediction."""
    top_k: int = 0
    """Best classes per example."""
    nearest_memories: int = 0
    """Nearest memories per example."""
    image_pixels: int = 0
    """Pixels of one encoded image."""
    snapshot_bytes: int = 0
    """Bytes of an imported snapshot."""
    automatic_snapshots: int = 0
    """Automatic snapshots kept, per learner."""
    manual_snapshots: int = 0
    """Requested and imported snapshots, per learner."""
    weights_bytes: int = 0
    """Bytes of all weights that clients bring."""


@dataclass(frozen=True, repr=False)
class CorruptionEvent(Answer, message=server_pb2.CorruptionEvent):
    """Something on disk that was found to differ from what was written."""

    time: datetime | None = None
    """When it was found."""
    learner: str = ""
    """The learner it belongs to. Empty: none in particular."""
    snapshot_id: str = ""
    """Id of the snapshot. Empty: something else, see the detail."""
    lost_model_version: int = 0
    """The version that was lost. 0: none."""
    serving_model_version: int = 0
    """The version that serves in its place. 0: none."""
    detail: str = ""
    """What it was, in one sentence."""


@dataclass(frozen=True, repr=False)
class ServerStatus(Answer, message=admin_pb2.GetServerStatusResponse):
    """A server at one moment."""

    version: str = ""
    """Version of the software."""
    start_time: datetime | None = None
    """When it started."""
    state: str = ""
    """What it is doing: "starting", "serving" or "stopping"."""
    learners: int = 0
    """Learners it has."""
    trainer: TrainerStatus = field(default_factory=TrainerStatus)
    """The process that trains."""
    limits: ServerLimits = field(default_factory=ServerLimits, repr=False)
    """Its limits."""
    data_bytes: int = 0
    """Bytes that its data take on disk."""
    free_bytes: int = 0
    """Bytes that are free there."""
    corruption_events: tuple[CorruptionEvent, ...] = ()
    """What was found damaged, newest first."""
    device: str = ""
    """Where it computes, as in "cpu"."""
    object_store_failure: str = ""
    """Why the object store could not be reached when it was last tried; empty: it could, or there is none."""
    teacher: TeacherStatus = field(default_factory=TeacherStatus)
    """The process that teaches what is known at once."""
