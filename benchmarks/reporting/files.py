"""Results as files, each written completely or not at all."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a text file, complete or not at all; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file, complete or not at all."""
    write_text(path, json.dumps(plain(values), indent=1, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """The same value for JSON, which has no NaN and no infinity: null stands for them.

    >>> plain({1: (0.5, float("nan"))})
    {'1': [0.5, None]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
