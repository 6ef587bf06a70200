"""One exception per value of ErrorReason, in the order of its numbers."""

from __future__ import annotations

from ._errors import (
    AuthenticationError,
    ConflictError,
    DataLossError,
    DeadlineError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    ServerFaultError,
    UnavailableError,
    UnsupportedError,
)


class TokenMissingError(AuthenticationError):
    """The call needs a bearer token in the metadata key "authorization" and has none."""

    reason = "TOKEN_MISSING"


class TokenInvalidError(AuthenticationError):
    """The token is not one that the server knows (any more)."""

    reason = "TOKEN_INVALID"


class RoleMissingError(AuthenticationError):
    """The token is known, but not for this service. Metadata: role: the role it would need."""

    reason = "ROLE_MISSING"


class LearnerNotFoundError(NotFoundError):
    """No learner of that name."""

    reason = "LEARNER_NOT_FOUND"


class SnapshotNotFoundError(NotFoundError):
    """The learner has no such snapshot, or has none at all. Metadata: snapshot."""

    reason = "SNAPSHOT_NOT_FOUND"


class EpisodeNotFoundError(NotFoundError):
    """The learner has no such episode, or it is learned or discarded. Metadata: episode."""

    reason = "EPISODE_NOT_FOUND"


class ClassNotFoundError(NotFoundError):
    """The learner does not know that class. Metadata: label."""

    reason = "CLASS_NOT_FOUND"


class VersionNotFoundError(NotFoundError):
    """A model version was named that is not the one being served. Metadata: version, serving."""

    reason = "VERSION_NOT_FOUND"


class RequestIdUsedError(ConflictError):
    """The request id belongs to an earlier lesson with other examples or labels. Metadata: request_id."""

    reason = "REQUEST_ID_USED"


class LearnerExistsError(ConflictError):
    """There already is a learner of that name."""

    reason = "LEARNER_EXISTS"


class ClassExistsError(ConflictError):
    """There already is a class of that name. Metadata: label."""

    reason = "CLASS_EXISTS"


class FieldInvalidError(InvalidArgumentError):
    """A field is missing or out of its range; BadRequest says which. Metadata: field."""

    reason = "FIELD_INVALID"


class UnexpectedMessageError(InvalidArgumentError):
    """A message that the protocol of the stream does not allow here: the first was not the opening one, or a
    later one was. Metadata: expected, found.
    """

    reason = "UNEXPECTED_MESSAGE"


class NameInvalidError(InvalidArgumentError):
    """The name of a learner or a stream is not of its form. Metadata: name."""

    reason = "NAME_INVALID"


class ConfigInvalidError(InvalidArgumentError):
    """An unknown preset, an unknown setting, or a value that it does not accept. Metadata: setting, value."""

    reason = "CONFIG_INVALID"


class ShapeMismatchError(InvalidArgumentError):
    """The examples are not of the learner's input shape. Metadata: expected, found."""

    reason = "SHAPE_MISMATCH"


class DtypeUnsupportedError(InvalidArgumentError):
    """A dtype that is not supported. Metadata: dtype."""

    reason = "DTYPE_UNSUPPORTED"


class TensorSizeMismatchError(InvalidArgumentError):
    """The bytes of a tensor are more or fewer than its shape and dtype ask for. Metadata: expected, found."""

    reason = "TENSOR_SIZE_MISMATCH"


class NonFiniteValuesError(InvalidArgumentError):
    """A NaN or an infinity among the inputs. Metadata: example: index of the first such example."""

    reason = "NON_FINITE_VALUES"


class ValuesOutOfRangeError(InvalidArgumentError):
    """Float images with values that no scaled picture has. Metadata: example: index of the first, lowest, highest."""

    reason = "VALUES_OUT_OF_RANGE"


class LabelCountMismatchError(InvalidArgumentError):
    """Not one label per example. Metadata: examples, labels."""

    reason = "LABEL_COUNT_MISMATCH"


class LabelKindMismatchError(InvalidArgumentError):
    """Texts for a learner of integers, or the other way round. Metadata: expected, found."""

    reason = "LABEL_KIND_MISMATCH"


class LabelInvalidError(InvalidArgumentError):
    """A text label that is empty or too long. Metadata: example: index of the first such example, limit."""

    reason = "LABEL_INVALID"


class ImageMalformedError(InvalidArgumentError):
    """Neither a PNG nor a JPEG, or a damaged one. Metadata: example."""

    reason = "IMAGE_MALFORMED"


class ImageTooLargeError(InvalidArgumentError):
    """An image with more pixels than are decoded. Metadata: example, pixels, limit."""

    reason = "IMAGE_TOO_LARGE"


class SnapshotMalformedError(InvalidArgumentError):
    """What was offered as a snapshot is not one, or is incomplete. Metadata: defect."""

    reason = "SNAPSHOT_MALFORMED"


class WeightsMalformedError(InvalidArgumentError):
    """What was offered as weights is not a whole file of plain tensors. Metadata: defect."""

    reason = "WEIGHTS_MALFORMED"


class ChecksumMismatchError(InvalidArgumentError):
    """The bytes that arrived do not have the SHA-256 that was announced. Metadata: expected, found."""

    reason = "CHECKSUM_MISMATCH"


class PageTokenInvalidError(InvalidArgumentError):
    """The page token is not one of this list."""

    reason = "PAGE_TOKEN_INVALID"


class NothingLearnedError(PreconditionError):
    """The learner knows no class yet, or no longer, so there is nothing to predict or to save."""

    reason = "NOTHING_LEARNED"


class BackboneNeededError(PreconditionError):
    """Images of this size need a pretrained backbone: a learner with the settings architecture.kind = "backbone" and
    architecture.backbone, e.g. {"model": "resnet18", "layer": "avgpool", "weights": …}. Metadata: shape, largest.
    """

    reason = "BACKBONE_NEEDED"


class BoundariesMismatchError(PreconditionError):
    """The stream was opened before with boundaries of the other kind. Metadata: expected, found."""

    reason = "BOUNDARIES_MISMATCH"


class EpisodeNotParkedError(PreconditionError):
    """The episode is not parked: it is waiting or being learned. Metadata: episode."""

    reason = "EPISODE_NOT_PARKED"


class SnapshotIncompatibleError(PreconditionError):
    """The snapshot has another input shape or kind of labels than the learner. Metadata: snapshot, expected, found."""

    reason = "SNAPSHOT_INCOMPATIBLE"


class SnapshotFormatUnsupportedError(PreconditionError):
    """The snapshot is of a format that this server can't read. Metadata: format, newest."""

    reason = "SNAPSHOT_FORMAT_UNSUPPORTED"


class EpisodeNeededError(PreconditionError):
    """Images without pretrained features are taught one by one only after a first episode was learned."""

    reason = "EPISODE_NEEDED"


class MetricNeededError(PreconditionError):
    """Only learners with a learned metric can be taught single examples: metric.enabled is false for this one."""

    reason = "METRIC_NEEDED"


class SnapshotInUseError(PreconditionError):
    """The learner would start from this snapshot after a crash, so it can't be deleted. Metadata: snapshot."""

    reason = "SNAPSHOT_IN_USE"


class NothingToUndoError(PreconditionError):
    """There is no version before the one that serves, or its snapshot is no longer kept. Metadata: version."""

    reason = "NOTHING_TO_UNDO"


class SequenceGapError(ConflictError):
    """A sequence number was left out. Open the stream again and continue after its last durable number. Metadata:
    expected, found.
    """

    reason = "SEQUENCE_GAP"


class StreamTakenOverError(ConflictError):
    """Another call opened the same stream and took it over."""

    reason = "STREAM_TAKEN_OVER"


class LearnerBusyError(ConflictError):
    """Another call is restoring, changing or deleting the learner right now."""

    reason = "LEARNER_BUSY"


class JournalFullError(ExhaustedError):
    """The learner's limit of bytes not yet learned is reached and the producer did not want to wait. Metadata: bytes,
    limit, durable_sequence.
    """

    reason = "JOURNAL_FULL"


class EpisodeTooLargeError(ExhaustedError):
    """The limit of bytes not yet learned is filled by episodes that were never ended or are parked, so waiting can't
    help: make episodes smaller, or have the parked ones retried or discarded. Metadata: bytes, limit,
    durable_sequence.
    """

    reason = "EPISODE_TOO_LARGE"


class QueueFullError(ExhaustedError):
    """Too many predictions are waiting. Metadata: limit."""

    reason = "QUEUE_FULL"


class TooManyStreamsError(ExhaustedError):
    """Too many streams are open. Metadata: limit."""

    reason = "TOO_MANY_STREAMS"


class DiskFullError(ExhaustedError):
    """The data folder's disk has no room for this. Metadata: needed."""

    reason = "DISK_FULL"


class TooManyLearnersError(ExhaustedError):
    """Too many learners: delete one first. Metadata: limit."""

    reason = "TOO_MANY_LEARNERS"


class TooManyClassesError(ExhaustedError):
    """The batch would bring more classes than a learner may have. Metadata: limit."""

    reason = "TOO_MANY_CLASSES"


class TooManyExamplesError(ExhaustedError):
    """More examples in one message than are accepted: split it. Metadata: examples, limit."""

    reason = "TOO_MANY_EXAMPLES"


class TooManyResultsError(ExhaustedError):
    """More top classes or nearest memories than a server returns. Metadata: field, limit."""

    reason = "TOO_MANY_RESULTS"


class TooManySnapshotsError(ExhaustedError):
    """The learner has as many snapshots of this kind as it may keep: delete one first. Metadata: limit."""

    reason = "TOO_MANY_SNAPSHOTS"


class SnapshotTooLargeError(ExhaustedError):
    """The file offered as a snapshot is larger than is accepted. Metadata: bytes, limit."""

    reason = "SNAPSHOT_TOO_LARGE"


class WeightsTooLargeError(ExhaustedError):
    """The file of weights does not fit into what the server keeps of such files. Metadata: bytes, limit."""

    reason = "WEIGHTS_TOO_LARGE"


class ExamplesNotReachedError(DeadlineError):
    """The wanted number of examples was not known before the deadline. Metadata: wanted, known."""

    reason = "EXAMPLES_NOT_REACHED"


class VersionNotReachedError(DeadlineError):
    """The wanted model version was not reached before the deadline. Metadata: wanted, serving."""

    reason = "VERSION_NOT_REACHED"


class ServerNotReadyError(UnavailableError):
    """The server is starting or stopping. Repeat the call; a Learn stream continues after its last durable number."""

    reason = "SERVER_NOT_READY"


class NotOwnerError(UnavailableError):
    """Only in a cluster: the server that was asked does not own the learner (any more), and wrote nothing. Repeat the
    call; a Learn stream continues after its last durable number. Metadata: owner: the address of the one that does.
    """

    reason = "NOT_OWNER"


class OwnerUnreachableError(UnavailableError):
    """Only in a cluster: no server owns the learner right now, or it can't be reached. Metadata: owner."""

    reason = "OWNER_UNREACHABLE"


class StoreUnavailableError(UnavailableError):
    """The database that holds the journal can't be reached. Repeat the call; a Learn stream continues after its last
    durable number.
    """

    reason = "STORE_UNAVAILABLE"


class ObjectStoreUnavailableError(UnavailableError):
    """The object store can't be reached: nothing was changed, unless the message says so; repeat the call."""

    reason = "OBJECT_STORE_UNAVAILABLE"


class SnapshotDamagedError(DataLossError):
    """The stored snapshot no longer has the SHA-256 it was written with. Metadata: snapshot."""

    reason = "SNAPSHOT_DAMAGED"


class FeatureUnsupportedError(UnsupportedError):
    """A part of the Open Inference Protocol that this server does not offer. Metadata: feature."""

    reason = "FEATURE_UNSUPPORTED"


class InternalError(ServerFaultError):
    """An error in the server. Metadata: incident: the place in its log."""

    reason = "INTERNAL_ERROR"
