"""Qualities of versions as the journal keeps them: JSON that names classes, but none that was forgotten."""

from __future__ import annotations

import json
from collections.abc import Collection


def without_classes(quality: str, labels: Collection[str]) -> str:
    """The same without some classes (labels as JSON), also where one was mistaken for another."""
    found = json.loads(quality)
    gone = [json.loads(label) for label in labels]
    found["classes"] = [entry for entry in found["classes"] if entry[0] not in gone]
    found["confusions"] = [pair for pair in found["confusions"] if pair[0] not in gone and pair[1] not in gone]
    return json.dumps(found, separators=(",", ":"))
