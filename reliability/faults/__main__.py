"""The command line of the faults, and their table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from reliability.faults.run import FaultsResult, Outcome, run
from reliability.faults.scenarios import SCENARIOS

app = new_app()


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(SCENARIOS)}; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long each fault lasts.")] = 10.0,
    folder: Annotated[Path | None, typer.Option(help="Keep data folders and logs here.")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
) -> None:
    """Let disk, clock, memory, trainer, certificate and name fail under a working server, and say what happened."""
    unknown = set(only or ()) - set(SCENARIOS)
    if unknown:
        raise typer.BadParameter(f"no such fault: {', '.join(sorted(unknown))}")

    def fail(bar: ProgressBar) -> FaultsResult:
        return run(only or list(SCENARIOS), seconds, folder, bar)

    execute(fail, show, output=output, failed=lambda result: not result.well)


def show(result: FaultsResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("fault", "predictions", "slowest, s", "acknowledged", "well again after, s", "lost", "held"):
        table.add_column(column)
    for row in result.outcomes:
        table.add_row(
            f"{row.fault}\n  {row.about}",
            _predictions(row),
            f"{row.slowest_prediction:.2f}",
            str(row.acknowledged),
            f"{row.recovery_seconds:.1f}" + (f"\n{row.parked} parked, retried" if row.parked else ""),
            str(row.lost),
            "✓" if row.well else f"✗ {row.problem}",
        )
    yield table


def _predictions(row: Outcome) -> str:
    failed = ", ".join(f"{count} {reason}" for reason, count in row.failed.items())
    return (
        f"{row.answered} answered" + (f"\n{failed}" if failed else "") + (f"\n{row.wrong} wrong" if row.wrong else "")
    )


main = entry_point(app, "reliability.faults")

if __name__ == "__main__":
    main()
