"""The command line of the crash loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from reliability.crash.options import GOAL_RECOVERY, CrashOptions
from reliability.crash.run import CrashResult, run

app = new_app()


@app.command()
def command(
    kills: Annotated[int, typer.Option(help="How often something is killed.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the moments, of what is killed, and of the stream.")] = 0,
    store: Annotated[str, typer.Option(help="Of the journal: sqlite, or postgres, which is killed too.")] = "sqlite",
    output: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the data folder and the server's log here.")] = None,
) -> None:
    """Kill server, trainer and connections while a stream is learned, and check that nothing was lost or doubled."""

    def kill(bar: ProgressBar) -> CrashResult:
        return run(CrashOptions(kills=kills, seed=seed, store=store), bar, folder)

    execute(kill, show, output=output, failed=lambda result: not result.survived)


def show(result: CrashResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    yield table(result)
    yield verdict(result)


def table(result: CrashResult) -> Table:
    """What happened."""
    figures = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    rows = {
        **{f"kills: {kind}": count for kind, count in sorted(result.kills.items())},
        "episodes learned": result.episodes,
        "batches acknowledged": result.batches,
        "batches sent last and never acknowledged": result.unacknowledged,
        "examples learned, each once": result.examples_learned,
        "lessons taught, each once": result.lessons,
        "times that the producer took up its stream again": result.resumptions,
        "predictions": result.predictions,
        "versions that answered": result.versions_answering,
        "predictions for which nobody was there": result.unanswered,
        **{f"operations: {kind}": count for kind, count in sorted(result.operations.items())},
        "kills in the middle of one": result.kills_in_operations,
        **{
            f"recovery of the {kind}, s: median, slowest": f"{seconds['median']:.1f}, {seconds['slowest']:.1f}"
            for kind, seconds in result.recoveries.items()
        },
        f"slowest recovery, s (goal: at most {GOAL_RECOVERY:g})": f"{result.slowest_recovery:.1f}",
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


main = entry_point(app, "reliability.crash")

if __name__ == "__main__":
    main()
