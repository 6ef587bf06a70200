"""The command line of the fuzzer, and its table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from reliability.fuzz.run import PER_UNIT, FuzzOptions, FuzzResult, run

app = new_app()


@app.command()
def command(
    messages: Annotated[int, typer.Option(help="Send at least this many messages to methods.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Where the made-up messages start from.")] = 0,
    per_round: Annotated[int, typer.Option(help="Calls of each method before the next one's turn.")] = 100,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
) -> None:
    """Attack a server with hostile messages, files and connections; ends with 1 if anything broke."""

    def attack(bar: ProgressBar) -> FuzzResult:
        return run(FuzzOptions(messages, seed, per_round), bar)

    execute(attack, tables, output=output, failed=lambda result: bool(result.failures))


def tables(result: FuzzResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    title = f"{result.messages:,} hostile messages in {result.seconds:,.0f} s"
    table = Table("", title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("messages", justify="right")
    table.add_column("answers")
    for name, tally in result.tallies.items():
        codes = ", ".join(f"{code} {count:,}" for code, count in sorted(tally["codes"].items()))
        table.add_row(name, f"{tally['messages']:,}", codes)
    yield table
    yield Text("; ".join(f"{count:,} {name}" for name, count in result.wire.items()))
    for name, trace in result.memory.traces.items():
        yield Text(
            f"memory of the {name}: {trace.growth:+.1f} MB after the warm-up; "
            f"{trace.describe_slope()} MB per {PER_UNIT:,} messages"
        )
    for failure in result.failures:
        yield Text(failure, style="bold red")
    if not result.failures:
        yield Text("nothing broke: no fault, nothing revealed, planted learners as before", style="bold green")
    yield Text(describe(machine()), style="dim")


main = entry_point(app, "reliability.fuzz")

if __name__ == "__main__":
    main()
