"""The command line of the crash loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from benchmarks.crash.options import CrashOptions
from benchmarks.crash.run import CrashResult, run
from benchmarks.errors import BenchmarkError
from benchmarks.result import write_json
from sharp_client import SharpError

app = typer.Typer(add_completion=False)


@app.command()
def command(
    kills: Annotated[int, typer.Option(help="How often something is killed.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the moments, of what is killed, and of the stream.")] = 0,
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the data folder and the server's log here.")] = None,
) -> None:
    """Kill server, trainer and connections while a stream is learned, and check that nothing was lost or doubled."""
    console = Console()
    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        options = CrashOptions(kills=kills, seed=seed)
        with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
            task = progress.add_task("", total=kills)
            result = run(options, lambda done, text: progress.update(task, completed=done, description=text), folder)
    except (BenchmarkError, SharpError) as error:
        Console(stderr=True).print(f"[bold red]stopped:[/] {error}", highlight=False)
        raise typer.Exit(2) from None
    console.print(table(result), verdict(result), sep="\n")
    if output is not None:
        write_json(output, result.to_dict())
        console.print(f"written: {output}", highlight=False)
    if not result.survived:
        raise typer.Exit(1)


def table(result: CrashResult) -> Table:
    """What happened."""
    figures = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    rows = {
        **{f"kills: {kind}": count for kind, count in sorted(result.kills.items())},
        "episodes learned": result.episodes,
        "batches acknowledged": result.batches,
        "batches sent last and never acknowledged": result.unacknowledged,
        "examples learned, each once": result.examples_learned,
        "times that the producer took up its stream again": result.resumptions,
        "predictions": result.predictions,
        "versions that answered": result.versions_answering,
        "predictions for which nobody was there": result.unanswered,
        "slowest recovery, s": f"{result.slowest_recovery:.1f}",
        "tensors compared bit for bit": result.tensors,
        "seconds": f"{result.seconds:.0f}",
    }
    for name, value in rows.items():
        figures.add_row(name, str(value))
    return figures


def verdict(result: CrashResult) -> Text:
    """Each promise, and whether it held."""
    text = Text()
    for promise, broken in result.violations.items():
        text.append(f"{'✗' if broken else '✓'} {promise}\n", style="bold red" if broken else "green")
        text.append("".join(f"    {line}\n" for line in broken[:5]), style="red")
    text.append(f"kills survived: {result.survived}", style="bold")
    return text


def main(arguments: list[str] | None = None, program: str = "python -m benchmarks.crash") -> None:
    """Run the command line; ends the process."""
    app(args=arguments, prog_name=program)


if __name__ == "__main__":
    main()
