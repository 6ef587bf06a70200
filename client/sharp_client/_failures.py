"""From a failed call to its exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import grpc

from sharp.v1 import errors_pb2

from . import _reasons, _status
from ._errors import (
    AuthenticationError,
    CancelledCallError,
    ConflictError,
    DataLossError,
    DeadlineError,
    ExhaustedError,
    InvalidArgumentError,
    MessageTooLargeError,
    NotFoundError,
    PreconditionError,
    ServerFaultError,
    SharpError,
    UnavailableError,
    UnsupportedError,
)

BY_REASON: Final[Mapping[str, type[SharpError]]] = {
    kind.reason: kind
    for kind in vars(_reasons).values()
    if isinstance(kind, type) and issubclass(kind, SharpError) and kind.reason
}
"""The exception of each reason."""

BY_CODE: Final[Mapping[str, type[SharpError]]] = {
    "CANCELLED": CancelledCallError,
    "UNKNOWN": ServerFaultError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": DeadlineError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": ConflictError,
    "PERMISSION_DENIED": AuthenticationError,
    "RESOURCE_EXHAUSTED": MessageTooLargeError,
    "FAILED_PRECONDITION": PreconditionError,
    "ABORTED": ConflictError,
    "OUT_OF_RANGE": InvalidArgumentError,
    "UNIMPLEMENTED": UnsupportedError,
    "INTERNAL": ServerFaultError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DataLossError,
    "UNAUTHENTICATED": AuthenticationError,
}
"""The exception of a failure without a reason that this client knows, by canonical code."""

_E = TypeVar("_E", bound=SharpError)
_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


def is_retryable(reason: str) -> bool:
    """Look up whether the same call may succeed later."""
    value = errors_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(reason)
    return value is not None and bool(value.GetOptions().Extensions[errors_pb2.retryable])


def canonical_code(reason: str) -> str:
    """Look up the canonical code of a reason."""
    code: str = (
        errors_pb2.ErrorReason.DESCRIPTOR.values_by_name[reason].GetOptions().Extensions[errors_pb2.canonical_code]
    )
    return code


def make_error(code: str, message: str, details: _status.StatusDetails) -> SharpError:
    """Turn what a failed call says into its exception."""
    kind = BY_REASON.get(details.reason)
    if kind is None:
        # With a reason that is newer than this client, RESOURCE_EXHAUSTED is not about the size of a message.
        kind = (
            ExhaustedError if details.reason and code == "RESOURCE_EXHAUSTED" else BY_CODE.get(code, ServerFaultError)
        )
    return kind(
        message or code,
        code=code,
        metadata=details.metadata,
        retry_delay=details.retry_delay,
        violations=details.violations,
        retryable=is_retryable(details.reason) if details.reason else code == "UNAVAILABLE",
    )


def error_of_call(failed: grpc.RpcError) -> SharpError:
    """Turn the exception of a failed gRPC call into its typed one."""
    code, message = failed.code(), failed.details() or ""
    details = _status.StatusDetails()
    trailer: Any = failed.trailing_metadata() or ()
    for key, value in trailer:
        if key == _status.DETAILS_KEY:
            details = _status.decode(value)
    return make_error(code.name, message, details)


def error_of_failure(failure: errors_pb2.Failure) -> SharpError:
    """Turn the failure of one item of a stream into its exception."""
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    reason = errors_pb2.ErrorReason.Name(failure.reason) if failure.reason else ""
    return make_error(code.name, failure.message, _status.StatusDetails(reason, dict(failure.metadata)))


def local_error(kind: type[_E], message: str, **metadata: object) -> _E:
    """Make the exception that the server would answer with, before anything is sent."""
    return kind(message, metadata={key: str(value) for key, value in metadata.items()})
