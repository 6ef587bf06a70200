"""The options of every command that reads labelled data."""

from __future__ import annotations

from typing import Annotated

import typer

ClassLevelOption = Annotated[
    int | None,
    typer.Option(help="Nested folders: which level is the class, 1 the outermost, -1 the innermost.", min=-1),
]
"""Which level of folders."""

LabelColumnOption = Annotated[
    str | None,
    typer.Option(help="The column of labels. If missing: label, class, target or y, else the last.", metavar="NAME"),
]
"""Which column of a table."""

SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without files and rows that can't be used; they are listed.")
]
"""What to do with bad items."""
