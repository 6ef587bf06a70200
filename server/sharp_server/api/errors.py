"""One table from exceptions to answers: canonical code, reason, metadata, details. Nothing else makes an error answer.

An answer never holds a path, a stack trace or an example. INTERNAL is for faults of ours only: what happened goes to
the log under an incident number, and the number goes to the client.

The canonical code of a reason is written in the proto, beside the reason.
"""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

import sharp_engine as engine
from sharp.v1 import errors_pb2
from sharp_server.errors import (
    JournalUnavailable,
    ObjectsUnavailable,
    RpcError,
    StoreUnavailable,
    disk_is_full,
    redact,
)

log = logging.getLogger(__name__)

DOMAIN = "sharp.v1"
RETRY_SECONDS = 1.0
"""The retry delay where nothing better is known."""

REASONS = {value.name: value for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number}
CODES: dict[str, grpc.StatusCode] = {
    name: grpc.StatusCode[value.GetOptions().Extensions[errors_pb2.canonical_code]] for name, value in REASONS.items()
}
"""The canonical code of every reason, as the proto says."""


@dataclass(frozen=True)
class Answer:
    """What a client reads."""

    reason: str
    message: str
    metadata: dict[str, str]
    fields: tuple[str, ...] = ()
    retry: float | None = None

    @property
    def code(self) -> grpc.StatusCode:
        """The canonical code of the reason."""
        return CODES[self.reason]

    def failure(self) -> errors_pb2.Failure:
        """The same, as an item of a stream that goes on."""
        return errors_pb2.Failure(
            code=self.code.value[0],
            reason=errors_pb2.ErrorReason.Value(self.reason),
            message=self.message,
            metadata=self.metadata,
        )

    def status(self) -> status_pb2.Status:
        """The same, as the status of a call."""
        details: list[any_pb2.Any] = []
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)
        details.append(_packed(info))
        if self.fields:
            violations = [
                error_details_pb2.BadRequest.FieldViolation(field=name, description=self.message)
                for name in self.fields
            ]
            details.append(_packed(error_details_pb2.BadRequest(field_violations=violations)))
        retry = self.retry
        if retry is None and self.code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
            retry = RETRY_SECONDS
        if retry is not None:
            delay = duration_pb2.Duration()
            delay.FromNanoseconds(int(retry * 1e9))
            details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        return status_pb2.Status(code=self.code.value[0], message=self.message, details=details)


def _packed(message: object) -> any_pb2.Any:
    detail = any_pb2.Any()
    detail.Pack(message)  # type: ignore[arg-type]
    return detail


Rule = Callable[[BaseException], Answer]


def _details(reason: str, *, field: str = "", key: str = "") -> Rule:
    """The engine's own sentence, which names no path; optionally the offending text under a key of the metadata."""

    def answer(error: BaseException) -> Answer:
        metadata = {key: redact(error)} if key else {}
        return Answer(reason, redact(error), metadata, (field,) if field else ())

    return answer


def _internal(error: BaseException) -> Answer:
    incident = uuid.uuid4().hex[:12]
    log.error("incident %s: %s", incident, type(error).__name__, exc_info=error)
    return Answer("INTERNAL_ERROR", f"a fault of the server; its log has it as {incident}", {"incident": incident})


def _disk(error: BaseException) -> Answer:
    return Answer("DISK_FULL", "the data folder's disk has no room for this", {})


def _store(error: BaseException) -> Answer:
    return Answer("STORE_UNAVAILABLE", "the database that holds the journal can't be reached", {})


def _objects(error: BaseException) -> Answer:
    return Answer("OBJECT_STORE_UNAVAILABLE", "the object store, which must have this first, can't be reached", {})


def _refused(error: BaseException) -> Answer:
    assert isinstance(error, RpcError)
    return Answer(error.reason, error.message, error.metadata, error.fields, error.retry)


def _sqlite(error: BaseException) -> Answer:
    return _disk(error) if disk_is_full(error) else _internal(error)


def _not_offered(error: BaseException) -> Answer:
    return Answer("FEATURE_UNSUPPORTED", "the method is not offered", {"feature": "method"})


def _no_room(error: BaseException) -> Answer:
    return Answer("QUEUE_FULL", "the server has no memory to spare for this", {})


TABLE: dict[type[BaseException], Rule] = {
    RpcError: _refused,
    JournalUnavailable: _disk,
    StoreUnavailable: _store,
    ObjectsUnavailable: _objects,
    sqlite3.Error: _sqlite,
    OSError: _sqlite,
    MemoryError: _no_room,
    NotImplementedError: _not_offered,
    engine.ConfigError: _details("CONFIG_INVALID", field="config", key="value"),
    engine.InputError: _details("FIELD_INVALID", field="inputs", key="field"),
    engine.ShapeError: _details("SHAPE_MISMATCH", field="inputs.tensor.shape"),
    engine.DtypeError: _details("DTYPE_UNSUPPORTED", field="inputs.tensor.dtype"),
    engine.NonFiniteError: _details("NON_FINITE_VALUES", field="inputs.tensor.data"),
    engine.LabelError: _details("LABEL_INVALID", field="labels"),
    engine.EmptyEpisodeError: _details("FIELD_INVALID", field="inputs", key="field"),
    engine.NoPositivePairError: _details("FIELD_INVALID", field="labels", key="field"),
    engine.UnknownClassError: _details("CLASS_NOT_FOUND", field="label"),
    engine.NothingLearnedError: _details("NOTHING_LEARNED"),
    engine.EpisodeStateError: _internal,
    engine.Cancelled: lambda error: Answer("LEARNER_BUSY", "another call is changing the learner", {}),
    engine.EpisodeFailedError: _internal,
    engine.NonFiniteLossError: _internal,
    engine.SilentNetworkError: _internal,
    engine.ShardingError: _internal,
    engine.SnapshotError: _details("SNAPSHOT_MALFORMED", key="defect"),
    engine.SnapshotVersionError: _details("SNAPSHOT_FORMAT_UNSUPPORTED", key="format"),
    engine.SharpError: _internal,
    Exception: _internal,
}
"""Every exception that may reach the edge of the server. The nearest class in an exception's line of descent counts."""


def answer_for(error: BaseException, learner: str = "") -> Answer:
    """What a client reads of an exception; `learner` is the one that the call named, if any."""
    rule = next(TABLE[cls] for cls in type(error).__mro__ if cls in TABLE)
    answer = rule(error)
    if learner and "learner" not in answer.metadata:
        answer.metadata["learner"] = redact(learner)
    return answer
