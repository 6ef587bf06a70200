"""What a command prints: a table or a sentence for people on a terminal, JSON and nothing else for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 160
"""Characters of a line where the output is no terminal."""

WORDY = ("detail", "note", "best", "value", "")
"""Columns that hold sentences."""


def console() -> Console:
    """The console for results. Made each time, as tests replace stdout."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, FILE_WIDTH)
    return made


def side_console() -> Console:
    """The console for progress, which is not part of the result."""
    return Console(stderr=True, highlight=False)


def write_json(value: Any) -> None:
    """Write one JSON document on one line."""
    sys.stdout.write(json.dumps(value, default=_plain_number, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


def table(*columns: str, rows: Sequence[Sequence[Any]], numbers: Sequence[str] = ()) -> Table:
    """Make a plain table; the named columns are right-aligned."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for column in columns:
        # Words may be broken where there is no room; numbers, names and ids may not.
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=column not in WORDY)
    for row in rows:
        made.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return made


def size(number: float) -> str:
    """Write bytes for people: 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def shorten(text: str, width: int) -> str:
    """Leave out the beginning of what is too long.

    >>> shorten("photos/red/00.png", 12)
    '…/red/00.png'
    """
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def count(number: int, word: str) -> str:
    """Write how many there are: 1 episode, 2,000 episodes."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def span(seconds: float) -> str:
    """Write a time span for people: 1:02:03 or 0:12."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
