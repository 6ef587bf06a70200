"""The command line of the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import RenderableType

from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from benchmarks.search.run import RESULTS, Trial, chosen, read_trials, search, summary

app = new_app()


@dataclass(frozen=True)
class Found:
    """What was asked for, and the lines of all finished runs of it."""

    trials: list[Trial]
    lines: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"lines": self.lines}


@app.command()
def command(
    settings: Annotated[Path, typer.Argument(help="Settings to try, TOML or JSON.")],
    data_root: Annotated[Path, typer.Option(help="Where the data sets lie.")],
    output: Annotated[Path | None, typer.Option(help="File of JSON lines; else below benchmarks/results/.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A setting's name; may be repeated.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch; two searches at once want one each.")] = None,
) -> None:
    """Try settings on validation data and print their means."""

    def measure(bar: ProgressBar) -> Found:
        if threads is not None:
            torch.set_num_threads(threads)
        trials = list(chosen(read_trials(settings, data_root), only))
        return Found(trials, search(trials, output or RESULTS / f"{settings.stem}.jsonl", bar.console, bar))

    execute(measure, show)


def show(found: Found) -> Iterator[RenderableType]:
    """What is printed at the end."""
    yield summary(found.lines, found.trials)


main = entry_point(app, "benchmarks.search")

if __name__ == "__main__":
    main()
