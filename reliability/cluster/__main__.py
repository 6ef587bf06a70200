"""The command line of the cluster run: `make test-cluster`."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import machine, versions
from reliability.cluster.machines import why_not
from reliability.cluster.run import ClusterResult, run

app = typer.Typer(add_completion=False)


@app.command()
def command(
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep data and logs here.")] = None,
    only: Annotated[
        str, typer.Option(help="Only disasters with this in their name: machine, link, head or database.")
    ] = "",
) -> None:
    """Kill a machine, cut a link, kill Ray's head and PostgreSQL under load, and check that nothing was lost."""
    console = Console()
    reason = why_not()
    if reason:
        console.print(f"the cluster was not tried here: {reason}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is cleared away
    result = run(lambda text: console.print(f"[dim]{text}[/dim]"), folder, only)
    console.print(table(result))
    for promise, broken in result.violations.items():
        console.print(f"[red]broken:[/red] {promise}: {'; '.join(broken[:5])}")
    if output is not None:
        write_json(output, {"versions": versions(), "machine": machine(), **dataclasses.asdict(result)})
    if not result.survived:
        raise typer.Exit(1)
    console.print(
        f"nothing lost: {result.batches} numbers acknowledged and {result.lessons} lessons, each once; "
        f"{result.tensors} tensors equal bit for bit; {result.seconds:.0f} s"
    )


def table(result: ClusterResult) -> Table:
    """What died, and what happened."""
    columns = ("what dies", "s until an owner", "s until Learn", "predictions meanwhile", "of them failed")
    made = Table(*columns, box=box.SIMPLE_HEAD)
    for disaster in result.disasters:
        made.add_row(
            disaster.what,
            f"{disaster.seconds_until_owner:.1f}" if disaster.seconds_until_owner else "–",
            f"{disaster.seconds_until_learn:.1f}",
            str(disaster.predictions),
            str(disaster.predictions_failed),
        )
    return made


if __name__ == "__main__":
    app()
