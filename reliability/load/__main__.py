"""The command line of the load run, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from reliability.load.result import SHARE, LoadOptions, LoadResult
from reliability.load.run import run

app = new_app()

_LOOK: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
_MOST_ROWS = 20
"""Of the table of slices; where there are more slices, each row stands for several."""


@app.command()
def command(
    minutes: Annotated[float, typer.Option(help="Of load, after capacity was measured.")] = 10.0,
    connections: Annotated[int, typer.Option(help="Clients connected at the same time.")] = 500,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs, in slices of a second or two.")] = False,
) -> None:
    """Load a server to 80 % of its capacity; ends with 1 if anything failed that was not refused at a limit."""

    def load(bar: ProgressBar) -> LoadResult:
        sizes: dict[str, Any] = {"slice_seconds": 1.5, "capacity_seconds": 0.5, "full_sizes": False} if tiny else {}
        return run(LoadOptions(minutes, connections, **sizes), bar)

    execute(load, report, output=output, failed=lambda result: bool(result.failures))


def report(result: LoadResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    yield _slices(result)
    yield _calls(result)
    yield _memory(result)
    yield _long_slices(result)
    yield Text(
        f"{result.rate:,.0f} requests/s, {SHARE:.0%} of {result.capacity:,.0f}, for {result.seconds:,.0f} s: "
        f"p50 {1000 * result.percentile(50):.2f} ms, p99 {1000 * result.percentile(99):.2f} ms",
        style="bold",
    )
    yield Text("; ".join(f"{count:,} {name}" for name, count in result.background.items()))
    for name, count in (("open descriptors", result.descriptors), ("files in the data folder", result.files)):
        yield Text(f"{name}: {count.first:,} at first, {count.last:,} in the end, {count.most:,} at most")
    yield Text(
        f"{result.connected:,} idle connections, {result.still_connected:,} of them open to the end; "
        f"{result.connections_seen:,} connections at the same time, by the system's account"
    )
    for failure in result.failures:
        yield Text(failure, style="bold red")
    if not result.failures:
        yield Text("nothing failed", style="bold green")
    yield Text(describe(machine()), style="dim")


def _slices(result: LoadResult) -> Table:
    """Latency over the run: the median and the worst p99 of the slices in each row."""
    together = -(-len(result.slices) // _MOST_ROWS) or 1
    table = Table("from", title=f"Latency by slices of {result.options.slice_seconds:g} s, ms", **_LOOK)
    for column in ("slices", "requests", "p50", "p99, median", "p99, worst", "generator", "failed"):
        table.add_column(column, justify="right")
    for first in range(0, len(result.slices), together):
        parts = result.slices[first : first + together]
        failed: Counter[str] = Counter()
        for part in parts:
            failed.update(part.failed)
        p50, p99 = ([1000 * value for value in values] for values in zip(*((s.p50, s.p99) for s in parts), strict=True))
        table.add_row(
            f"{parts[0].start / 60:.1f} min",
            str(len(parts)),
            f"{sum(part.answered for part in parts) + failed.total():,}",
            f"{np.median(p50):.2f}",
            f"{np.median(p99):.2f}",
            f"{max(p99):.2f}",
            f"{np.mean([part.generator_share for part in parts]):.0%} of a core",
            _codes(failed),
            style="red" if set(failed) - {"RESOURCE_EXHAUSTED"} else None,
        )
    return table


def _long_slices(result: LoadResult) -> Table:
    """Latency by ten minutes."""
    table = Table("ten minutes", title="Latency by ten minutes, ms", **_LOOK)
    for column in ("requests", "p50", "p99"):
        table.add_column(column, justify="right")
    for number, part in enumerate(result.long_slices, 1):
        figures = (f"{1000 * part.p50_seconds:.2f}", f"{1000 * part.p99_seconds:.2f}")
        table.add_row(str(number), f"{part.requests:,}", *figures)
    return table


def _calls(result: LoadResult) -> Table:
    """How many calls of each RPC ended with which code."""
    table = Table("RPC", title="Calls", **_LOOK)
    for column in ("calls", "OK", "other codes"):
        table.add_column(column, justify="right")
    broken = result.calls.failed()
    for rpc, codes in sorted(result.calls.by_rpc.items()):
        others = Counter({code: count for code, count in codes.items() if code != "OK"})
        style = "bold red" if rpc in broken else None
        table.add_row(rpc, f"{codes.total():,}", f"{codes['OK']:,}", _codes(others), style=style)
    return table


def _codes(codes: Counter[str]) -> str:
    return ", ".join(f"{count:,} {code}" for code, count in sorted(codes.items()))


def _memory(result: LoadResult) -> Table:
    """Where each process began and ended, and how fast it grew after the warm-up."""
    table = Table("process", title="Memory, MB; slopes after the warm-up, with 95 % confidence", **_LOOK)
    for column in ("first", "largest", "last", "growth", "per minute"):
        table.add_column(column, justify="right")
    for name, trace in result.memory.traces.items():
        figures = [trace.to_dict()[key] for key in ("first_mb", "largest_mb", "last_mb")]
        shown = ["–" if figure is None else f"{figure:,.0f}" for figure in figures]
        table.add_row(name, *shown, f"{trace.growth:+.1f}", trace.describe_slope())
    return table


main = entry_point(app, "reliability.load")

if __name__ == "__main__":
    main()
