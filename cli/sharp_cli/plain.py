"""Answers as plain values for `--json`: numbers as numbers, times as text, labels as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def to_plain(value: Any) -> Any:
    """Turn an answer into dicts and lists; everything is in it, also what is zero, but not what is absent."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: to_plain(content) for name, content in fields.items() if content is not None}
    if isinstance(value, Mapping):
        return {key: to_plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return time_text(value) if isinstance(value, datetime) else value


def time_text(moment: datetime | None) -> str:
    """Write a moment as in RFC 3339, in UTC. None: empty."""
    return "" if moment is None else moment.isoformat().replace("+00:00", "Z")
