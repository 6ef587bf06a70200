"""Messages as plain values, for `--json` and for tables: numbers as numbers, times as text, labels as they are."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from sharp_client import decode_label, decode_labels


def to_plain(message: Message) -> Any:
    """Turn a message into dicts and lists; everything is in it, also what is zero."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.ToJsonString()  # type: ignore[attr-defined]
    if name == "google.protobuf.Duration":
        return message.seconds + message.nanos / 1e9  # type: ignore[attr-defined]
    if name == "sharp.v1.Label":
        return decode_label(message)  # type: ignore[arg-type]
    if name == "sharp.v1.Labels":
        return decode_labels(message)  # type: ignore[arg-type]
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields if _is_shown(message, field)}


def enum_name(message: Message, field: str) -> str:
    """Name the value of an enum in small letters, without the prefix that all its values have."""
    return _enum_name(message.DESCRIPTOR.fields_by_name[field], getattr(message, field))


def _is_shown(message: Message, field: Any) -> bool:
    is_message = field.message_type is not None and not field.is_repeated
    return message.HasField(field.name) if field.containing_oneof is not None or is_message else True


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of_value = entry.fields_by_name["value"]
            return {key: _single(of_value, value[key]) for key in sorted(value)}
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        return _enum_name(field, value)
    return value.hex() if isinstance(value, bytes) else value


def _enum_name(field: Any, value: int) -> str:
    enum = field.enum_type
    if enum is None:
        return str(value)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    found = enum.values_by_number.get(value)
    return str(value) if found is None else found.name.removeprefix(prefix).lower()
