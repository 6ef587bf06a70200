"""A ring as tables for a terminal: one row per contestant, the most accurate first."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.machine import describe
from benchmarks.reporting.ring_tables import COLUMNS, row
from benchmarks.ring.report import heading
from benchmarks.ring.result import RingResult

SHOWN = (
    ("contestant", "contestant"),
    ("%", "accuracy %"),
    ("paper", "the paper"),
    ("CPU s", "CPU s to learn"),
    ("kept", "kept"),
    ("raw", "raw"),
)
"""What fits into a terminal of 80 letters, under shorter names; the report has all columns."""


def ring_tables(result: RingResult) -> Iterator[RenderableType]:
    """What is printed at the end of a run."""
    settings = result.settings
    title = f"{heading(settings)}: after all episodes, judged by {result.data['judged_by']}"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, _ in SHOWN:
        first = name == "contestant"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first)
    for standing in result.standings:
        cells = dict(zip(COLUMNS, row(standing.to_dict(), result.published), strict=True))
        style = "bold green" if standing.entry.kind == "ours" else None
        table.add_row(*(cells[column] for _, column in SHOWN), style=style)
    yield table
    for name, reason in result.absent.items():
        yield Text(f"{name}: {reason}", style="dim")
    for name, reason in result.failures.items():
        yield Text(f"{name} broke: {reason}", style="bold red")
    yield Text(describe(result.machine), style="dim")
