"""What can go wrong, as exceptions.

SharpError
├── AuthenticationError        TokenMissing, TokenInvalid, RoleMissing
├── NotFoundError              LearnerNotFound, SnapshotNotFound, EpisodeNotFound, ClassNotFound, VersionNotFound
├── ConflictError              LearnerExists, ClassExists, RequestIdUsed, LearnerBusy, SequenceGap, StreamTakenOver
├── InvalidArgumentError       FieldInvalid, UnexpectedMessage, NameInvalid, ConfigInvalid, ShapeMismatch,
│   (also a ValueError)        DtypeUnsupported, TensorSizeMismatch, NonFiniteValues, LabelCountMismatch,
│                              LabelKindMismatch, LabelInvalid, ImageMalformed, ImageTooLarge, SnapshotMalformed,
│                              ChecksumMismatch, PageTokenInvalid, ValuesOutOfRange, WeightsMalformed
├── PreconditionError          NothingLearned, BackboneNeeded, BoundariesMismatch, EpisodeNotParked,
│                              SnapshotIncompatible, SnapshotFormatUnsupported, SnapshotInUse, EpisodeNeeded,
│                              MetricNeeded, NothingToUndo
├── ExhaustedError             JournalFull, EpisodeTooLarge, QueueFull, TooManyStreams, DiskFull, TooManyLearners,
│                              TooManyClasses, TooManyExamples, TooManyResults, TooManySnapshots, SnapshotTooLarge,
│                              WeightsTooLarge
│   └── MessageTooLargeError   one message over the transport's limit
├── DeadlineError              VersionNotReached, ExamplesNotReached; or the deadline of the call passed
│   (also a TimeoutError)
├── UnavailableError           ServerNotReady, NotOwner, OwnerUnreachable, StoreUnavailable, ObjectStoreUnavailable;
│                              or no connection
│   (also a ConnectionError)
├── DataLossError              SnapshotDamaged
├── UnsupportedError           FeatureUnsupported
├── ServerFaultError           InternalError; or a failure that the transport can't explain
├── CancelledCallError         the call was cancelled, by either side
├── EpisodeNotLearnedError     what `report.wait()` raises
│   ├── EpisodeParkedError     the trainer gave up on the episode; an operator can retry or discard it
│   └── EpisodeDiscardedError  it will never be learned
├── ClosedError                the client or the learn stream was closed before
└── StreamLostError            the server no longer has what it acknowledged (it was restored, or the learner replaced)

Names in the right column end in `Error`. There is one class per value of ErrorReason, in `_reasons`. Checks made before
anything is sent raise the same classes as the server's answer would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ._status import FieldViolation


class SharpError(Exception):
    """Anything that goes wrong in this package."""

    reason: ClassVar[str] = ""
    """The value of ErrorReason that this class stands for. Empty: a group, or a failure without a reason."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        violations: Sequence[FieldViolation] = (),
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        """One sentence for people."""
        self.code = code
        """Name of the canonical gRPC code, as in "NOT_FOUND". Empty: nothing was sent, or it is not about a call."""
        self.metadata: Mapping[str, str] = dict(metadata or {})
        """The offending values."""
        self.retry_delay = retry_delay
        """Seconds after which the server suggests to try again. None: it suggests nothing."""
        self.violations = tuple(violations)
        """The fields of the request that are at fault."""
        self.retryable = retryable
        """Whether the very same call may succeed later."""


class AuthenticationError(SharpError):
    """The token is missing, unknown, or of another role."""


class NotFoundError(SharpError):
    """What was named does not exist."""


class ConflictError(SharpError):
    """Something else exists, or is in progress, in its place."""


class InvalidArgumentError(SharpError, ValueError):
    """The request itself is wrong."""


class PreconditionError(SharpError):
    """The request is fine, but the learner is not in a state for it."""


class ExhaustedError(SharpError):
    """A limit is reached."""


class MessageTooLargeError(ExhaustedError):
    """One message is larger than the other side accepts."""


class DeadlineError(SharpError, TimeoutError):
    """The deadline passed first. Whether the call had an effect is not known."""


class UnavailableError(SharpError, ConnectionError):
    """There is no connection, or the server accepts no calls right now."""


class DataLossError(SharpError):
    """Something that was stored is damaged."""


class UnsupportedError(SharpError):
    """The server does not offer this."""


class ServerFaultError(SharpError):
    """An error in the server, or on the way to it."""


class CancelledCallError(SharpError):
    """The call was cancelled."""


class EpisodeNotLearnedError(SharpError):
    """An episode that was waited for was not learned."""

    def __init__(self, message: str, *, episode: int) -> None:
        super().__init__(message)
        self.episode = episode
        """Number of the episode."""


class EpisodeParkedError(EpisodeNotLearnedError):
    """The trainer gave up on an episode; its examples are kept until an operator retries or discards it."""

    def __init__(self, message: str, *, episode: int, park_reason: str) -> None:
        super().__init__(message, episode=episode)
        self.park_reason = park_reason
        """Why, as in `EpisodeParked.reason`."""


class EpisodeDiscardedError(EpisodeNotLearnedError):
    """An episode was given up for good; its examples are deleted."""

    def __init__(self, message: str, *, episode: int, discard_reason: str) -> None:
        super().__init__(message, episode=episode)
        self.discard_reason = discard_reason
        """Why, as in `EpisodeDiscarded.reason`."""


class ClosedError(SharpError):
    """The client or the learn stream was closed before."""


class StreamLostError(SharpError):
    """The server no longer has what it acknowledged, so the stream can't continue."""
