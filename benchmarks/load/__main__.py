"""The command line of the load run, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from benchmarks.errors import BenchmarkError
from benchmarks.load.run import EXHAUSTED, SHARE, LoadOptions, LoadResult, run
from benchmarks.machine import describe, machine
from benchmarks.result import write_json
from sharp_client import SharpError

app = typer.Typer(add_completion=False)


@app.command()
def command(
    minutes: Annotated[float, typer.Option(help="Of load, after capacity was measured.")] = 10.0,
    connections: Annotated[int, typer.Option(help="Clients connected at the same time.")] = 500,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs, in slices of a second or two.")] = False,
) -> None:
    """Load a server to 80 % of its capacity; ends with 1 if anything failed that was not refused at a bound."""
    console = Console()
    try:
        options = LoadOptions(minutes, connections)
        if tiny:
            options = LoadOptions(minutes, connections, 2.0, 1.0, full_sizes=False)
        columns = (TextColumn("{task.description:32.32}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("starting", total=60.0 * minutes)
            result = run(options, lambda done, what: progress.update(task, completed=done, description=what))
    except (BenchmarkError, SharpError) as error:
        Console(stderr=True).print(f"[bold red]cannot run:[/] {error}", highlight=False)
        raise typer.Exit(2) from None
    console.print(*lines(result), sep="\n")
    if output is not None:
        write_json(output, result.to_dict())
        console.print(f"written: {output}", highlight=False)
    raise typer.Exit(1 if result.failures else 0)


def lines(result: LoadResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    yield Text(
        f"{result.rate:,.0f} requests/s, {SHARE:.0%} of {result.capacity:,.0f}, for {result.seconds:,.0f} s: "
        f"p50 {1000 * result.percentile(50):.2f} ms, p99 {1000 * result.percentile(99):.2f} ms",
        style="bold",
    )
    yield Text(f"{result.codes[EXHAUSTED]:,} requests refused at a bound")
    yield Text("; ".join(f"{count:,} {name}" for name, count in result.company.items()))
    yield Text(
        f"{result.connected:,} clients connected, {result.connections_seen:,} connections seen by the system, "
        f"{result.still_connected:,} held to the end, {result.crowd_answers:,} answers"
    )
    for name, trace in (("front", result.memory.front), ("trainer", result.memory.trainer)):
        slope = "too few samples" if trace.slope is None else f"{trace.slope:+.2f} MB per minute"
        yield Text(f"memory of the {name}: {trace.growth:+.1f} MB after the warm-up, {slope}")
    for failure in result.failures:
        yield Text(failure, style="bold red")
    if not result.failures:
        yield Text("nothing failed", style="bold green")
    yield Text(describe(machine()), style="dim")


def main(arguments: list[str] | None = None, program: str = "python -m benchmarks.load") -> None:
    """Run the command line; ends the process."""
    app(args=arguments, prog_name=program)


if __name__ == "__main__":
    main()
