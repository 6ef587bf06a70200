"""From messages of the wire to answers: small frozen dataclasses with the same fields, in Python's own types.

Each answer class names its message once, and everything else follows from the field names: times become `datetime`
(UTC), durations seconds, labels `str` or `int`, enums their lower-case names ("" where unspecified), bytes hex, lists
tuples. A field that is absent keeps the default of the dataclass. A test compares the fields of both sides.

This module decodes only. It must never send anything, or know what an answer is used for.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from .._labels import decode_label, decode_labels

ANSWERS: dict[str, type[Answer]] = {}
"""The class for each message, by the message's full name."""


class Answer:
    """Base of all answers: knows its message, and shows itself without what is empty."""

    message: ClassVar[type[Message]]

    def __init_subclass__(cls, message: type[Message], **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.message = message
        ANSWERS[message.DESCRIPTOR.full_name] = cls

    @classmethod
    def decode(cls, message: Message) -> Self:
        """Decode a message of this class's type."""
        present = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            descriptor = message.DESCRIPTOR.fields_by_name[field.name]
            if not descriptor.has_presence or message.HasField(field.name):
                present[field.name] = _value(descriptor, getattr(message, field.name))
        return cls(**present)

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.repr and value not in (None, "", (), {}):
                text = f"'{value:%Y-%m-%d %H:%M:%S}'" if isinstance(value, datetime) else repr(value)
                shown.append(f"{field.name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _value(field: Any, value: Any) -> Any:
    if not field.is_repeated:
        return _single(field, value)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of_value = entry.fields_by_name["value"]
        return {key: _single(of_value, value[key]) for key in sorted(value)}
    return tuple(_single(field, item) for item in value)


def _single(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return _enum_name(field.enum_type, value)
    if field.message_type is None:
        return value.hex() if isinstance(value, bytes) else value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return value.ToDatetime(tzinfo=UTC)
    if name == "google.protobuf.Duration":
        return value.seconds + value.nanos / 1e9
    if name == "sharp.v1.Label":
        return decode_label(value)
    if name == "sharp.v1.Labels":
        return tuple(decode_labels(value))
    return ANSWERS[name].decode(value)


def _enum_name(enum: Any, value: int) -> str:
    """Name a value without the prefix that all values of its enum have; a value newer than this client: its number."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    found = enum.values_by_number.get(value)
    name = str(value) if found is None else str(found.name).removeprefix(prefix).lower()
    return "" if name == "unspecified" else name
