"""What every command line of a benchmark or a reliability run shares: one progress bar, one report, one result file.

A command reads its options and hands `execute` three functions: one that runs, one that shows the result, and one that
says whether the result is a failure. Exit codes are the same everywhere: 0 done, 1 a promise or a check was broken, 2
it could not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

import sharp_client
import sharp_engine
from benchmarks.errors import BenchmarkError
from benchmarks.reporting.files import write_json
from devtools.server_process import ServerProcessError

_CANNOT_RUN = (BenchmarkError, ServerProcessError, sharp_client.SharpError, sharp_engine.SharpError)


class ReportProgress(Protocol):
    """How a run says what it is doing, how much is done, and of how much, in a unit of its own."""

    def __call__(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """What is left out stays as it was."""
        ...


def silently(text: str, done: float | None = None, total: float | None = None) -> None:
    """Report progress to nobody."""


class ProgressBar:
    """A line with a bar on a terminal; while no total is known, the bar only shows that something goes on."""

    def __init__(self, console: Console) -> None:
        self.console = console
        """Lines printed here stay above the bar."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("starting", total=None)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show where the run is."""
        self._progress.update(self._task, description=text, completed=done, total=total)


class Outcome(Protocol):
    """A result that can be kept."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        ...


Result = TypeVar("Result", bound=Outcome)


def new_app() -> typer.Typer:
    """An empty command line, to be given one command."""
    return typer.Typer(add_completion=False)


def execute(
    run: Callable[[ProgressBar], Result],
    show: Callable[[Result], Iterable[RenderableType]],
    *,
    output: Path | None = None,
    failed: Callable[[Result], bool] = lambda _: False,
) -> None:
    """Run with a progress bar, print what `show` yields, write JSON to `output`; ends the command where it failed.

    Options belong into `run`, so that what is wrong with them is reported like everything else that keeps it from
    running.
    """
    console = Console()
    try:
        with ProgressBar(console) as bar:
            result = run(bar)
    except _CANNOT_RUN as error:
        Console(stderr=True).print(Text.assemble(("cannot run: ", "bold red"), str(error)))
        raise typer.Exit(2) from None
    console.print(*show(result), sep="\n")
    if output is not None:
        write_json(output, result.to_dict())
        console.print(f"written: {output}", highlight=False)
    if failed(result):
        raise typer.Exit(1)


def entry_point(app: typer.Typer, module: str) -> Callable[..., None]:
    """The `main` of a command line: `sharp benchmark` calls it with its own arguments and name."""

    def main(arguments: list[str] | None = None, program: str = f"python -m {module}") -> None:
        """Run the command line; ends the process."""
        app(args=arguments, prog_name=program)

    return main
