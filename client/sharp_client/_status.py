"""Reads and writes google.rpc.Status with nothing but protobuf.

The four messages are declared here, in a pool of their own, because the package that ships them is no dependency of the
client. Only their field numbers matter on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

DETAILS_KEY = "grpc-status-details-bin"
"""The key of the trailing metadata that holds a google.rpc.Status."""

DOMAIN = "sharp.v1"
"""The domain of every ErrorInfo of this service."""

_TYPE_URL = "type.googleapis.com/google.rpc."
_F = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, list[tuple[str, int, int, bool, str]]] = {
    # name: (field, number, type, repeated, message type)
    "Any": [("type_url", 1, _F.TYPE_STRING, False, ""), ("value", 2, _F.TYPE_BYTES, False, "")],
    "Status": [
        ("code", 1, _F.TYPE_INT32, False, ""),
        ("message", 2, _F.TYPE_STRING, False, ""),
        ("details", 3, _F.TYPE_MESSAGE, True, "Any"),
    ],
    "Entry": [("key", 1, _F.TYPE_STRING, False, ""), ("value", 2, _F.TYPE_STRING, False, "")],
    "ErrorInfo": [
        ("reason", 1, _F.TYPE_STRING, False, ""),
        ("domain", 2, _F.TYPE_STRING, False, ""),
        # A map is, on the wire, a list of entries.
        ("metadata", 3, _F.TYPE_MESSAGE, True, "Entry"),
    ],
    "Duration": [("seconds", 1, _F.TYPE_INT64, False, ""), ("nanos", 2, _F.TYPE_INT32, False, "")],
    "RetryInfo": [("retry_delay", 1, _F.TYPE_MESSAGE, False, "Duration")],
    "FieldViolation": [("field", 1, _F.TYPE_STRING, False, ""), ("description", 2, _F.TYPE_STRING, False, "")],
    "BadRequest": [("field_violations", 1, _F.TYPE_MESSAGE, True, "FieldViolation")],
}


def _declare() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="sharp_client/status.proto", package="sharp_client", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, repeated, type_name in fields:
            message.field.add(
                name=field_name,
                number=number,
                type=_F.Type.ValueType(kind),
                label=_F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL,
                type_name=f".sharp_client.{type_name}" if type_name else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"sharp_client.{name}")) for name in _MESSAGES
    }


_CLASSES = _declare()


@dataclass(frozen=True)
class FieldViolation:
    """What is wrong with one field of a request."""

    field: str
    """Path of the field."""
    description: str
    """What is wrong with it, in one sentence."""


@dataclass(frozen=True)
class StatusDetails:
    """What a failed call says beyond its code and message."""

    reason: str = ""
    """The name of a value of ErrorReason. Empty: the failure came from the transport."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The offending values."""
    retry_delay: float | None = None
    """Seconds after which the call may be repeated. None: not given."""
    violations: Sequence[FieldViolation] = ()
    """The fields at fault."""


def decode(status: bytes) -> StatusDetails:
    """Read the details of a google.rpc.Status; what is not understood is left out."""
    reason, metadata, delay = "", {}, None
    violations: list[FieldViolation] = []
    try:
        for detail in _CLASSES["Status"].FromString(status).details:
            kind = detail.type_url.rpartition(".")[2]
            if kind == "ErrorInfo":
                info = _CLASSES["ErrorInfo"].FromString(detail.value)
                if info.domain == DOMAIN:
                    reason, metadata = info.reason, {entry.key: entry.value for entry in info.metadata}
            elif kind == "RetryInfo":
                wait = _CLASSES["RetryInfo"].FromString(detail.value).retry_delay
                delay = wait.seconds + wait.nanos / 1e9
            elif kind == "BadRequest":
                for violation in _CLASSES["BadRequest"].FromString(detail.value).field_violations:
                    violations.append(FieldViolation(violation.field, violation.description))
    except DecodeError:
        return StatusDetails()
    return StatusDetails(reason, metadata, delay, tuple(violations))


def encode(code: int, message: str, details: StatusDetails) -> bytes:
    """Write a google.rpc.Status, as a server does."""
    status = _CLASSES["Status"](code=code, message=message)

    def add(kind: str, detail: Any) -> None:
        status.details.add(type_url=_TYPE_URL + kind, value=detail.SerializeToString())

    if details.reason:
        info = _CLASSES["ErrorInfo"](reason=details.reason, domain=DOMAIN)
        for key, value in details.metadata.items():
            info.metadata.add(key=key, value=value)
        add("ErrorInfo", info)
    if details.retry_delay is not None:
        whole = int(details.retry_delay)
        info = _CLASSES["RetryInfo"]()
        info.retry_delay.seconds, info.retry_delay.nanos = whole, int((details.retry_delay - whole) * 1e9)
        add("RetryInfo", info)
    if details.violations:
        bad = _CLASSES["BadRequest"]()
        for violation in details.violations:
            bad.field_violations.add(field=violation.field, description=violation.description)
        add("BadRequest", bad)
    data: bytes = status.SerializeToString()
    return data
