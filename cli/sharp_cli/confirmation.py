"""Questions before what can't be undone."""

from __future__ import annotations

from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
"""Whether the answer is known."""


def confirm(question: str, answered: bool) -> None:
    """Ask, unless the answer is known; where nobody can answer, say which option would have."""
    if answered:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise ValueError("nobody is there to answer: --yes goes on without asking") from None
    if not agreed:
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
