"""The command line of the simulation."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: its threads would only wait for each other

from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from reliability.simulation.run import SimulationOptions, SimulationResult, run

app = new_app()


@app.command()
def command(
    schedules: Annotated[int, typer.Option(help="How many schedules.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the first one; the others follow.")] = 0,
    leases: Annotated[
        int | None, typer.Option(help="How many with two servers beside them.", show_default="a quarter as many")
    ] = None,
    only: Annotated[
        int | None, typer.Option(help="Run the schedule of this seed alone, with the server's log.")
    ] = None,
    only_leases: Annotated[int | None, typer.Option(help="The same, with two servers.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
) -> None:
    """Run the server in virtual time, with everything in the order that a seed brings, and check what came of it."""

    def simulate(bar: ProgressBar) -> SimulationResult:
        if only is None and only_leases is None:
            return run(SimulationOptions(schedules, seed, leases, jobs), bar)
        logging.basicConfig(level=logging.INFO, format="%(levelname)-7s %(name)s: %(message)s")
        if only_leases is not None:
            return run(SimulationOptions(0, only_leases, 1, 1, log=True), bar)
        return run(SimulationOptions(1, only or 0, 0, 1, log=True), bar)

    execute(simulate, show, output=output, failed=lambda result: bool(result.failed))


def show(result: SimulationResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    figures = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    for name, count in result.events.items():
        figures.add_row(name, str(count))
    figures.add_row("seconds", f"{result.seconds:.0f}")
    yield figures
    text = Text()
    for failed, problems in sorted(result.failed.items()):
        option = f"--only-{failed}" if failed.startswith("leases") else f"--only {failed}"
        text.append(f"✗ schedule {failed}: python -m reliability.simulation {option}\n", style="bold red")
        text.append("".join(f"    {line}\n" for line in problems[:5]), style="red")
    held = result.interleavings - len(result.failed)
    text.append(f"schedules that held: {held} of {result.interleavings}", style="bold")
    yield text


main = entry_point(app, "reliability.simulation")

if __name__ == "__main__":
    main()
