"""The command line of the serving benchmark, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.paper.options import parse_settings
from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from benchmarks.serving.comparison import Throughput
from benchmarks.serving.latency import Latencies
from benchmarks.serving.measure import ServingResult, run
from benchmarks.serving.options import PAGE_TARGET, PARTS, TEACHING_TARGET, TINY, ServingOptions, Sizes
from benchmarks.serving.pages import PageResult
from benchmarks.serving.paint import Paints
from benchmarks.serving.teaching import TeachingResult

app = new_app()

_LOOK: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}


@app.command()
def command(
    only: Annotated[
        list[str] | None, typer.Option(help="requests, messages, ingest, latency, teach or page; may be repeated.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of each single measurement.")] = 4.0,
    image_side: Annotated[int, typer.Option(help="8: scikit-learn's digits; else made-up images of that size.")] = 8,
    niceness: Annotated[int, typer.Option(help="Of the trainer, 0 to 19.")] = 10,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An engine setting; may be repeated.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs, in seconds; figures mean nothing.")] = False,
) -> None:
    """Measure latency while learning, and throughput beside what gRPC, the engine and SQLite reach by themselves."""

    def measure(bar: ProgressBar) -> ServingResult:
        options = ServingOptions(
            parts=tuple(only or PARTS),  # type: ignore[arg-type] # checked on construction
            seconds=min(seconds, 0.2) if tiny else seconds,
            image_side=image_side,
            niceness=0 if tiny else niceness,
            sizes=TINY if tiny else Sizes(),
            settings=tuple(parse_settings(settings or []).items()),
        )
        return run(options, bar)

    execute(measure, tables, output=output)


def tables(result: ServingResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    if result.latencies is not None:
        yield _latency(result.latencies)
    if result.teaching is not None:
        yield _calls(result.teaching)
        yield _predictions(result.teaching)
    if result.pages is not None:
        yield _pages(result.pages)
        if result.pages.paints:
            yield _paints(result.pages.paints)
    if result.throughput:
        yield _throughput(result.throughput)
    failures = result.failures
    yield Text(f"failed requests: {failures}", style="bold red" if failures else "bold green")
    yield Text(f"{describe(machine())}; {result.cores.describe()}", style="dim")


def _latency(found: Latencies) -> Table:
    title = f"Single-image Predict at {found.rate:,.0f} requests/s, half of the idle maximum; ms"
    table = Table("", title=title, **_LOOK)
    for column in ("p50", "p99", "p50 ratio", "p99 ratio", "reach", "failed", "versions"):
        table.add_column(column, justify="right")
    for state, base, target in found.rows():
        figures = [f"{1000 * statistics.median(values):.2f}" for values in (state.p50, state.p99)]
        p50, p99 = state.against(base)
        style = "" if target is None else "bold green" if p99 <= target else "bold red"
        ratios = ["", ""] if state is base else [f"{p50:.2f}", Text(f"{p99:.2f}", style=style)]
        reach = "" if target is None else f"≤ {target:g}"
        table.add_row(state.name, *figures, *ratios, reach, str(state.failures), str(state.versions or ""))
    return table


def _pages(found: PageResult) -> Table:
    title = f"Single-image Predict at {found.rate:,.0f} requests/s, {found.states_read:,} states read by pages; ms"
    table = Table("", title=title, **_LOOK)
    for column in ("p50", "p99", "p50 ratio", "p99 ratio", "reach", "failed"):
        table.add_column(column, justify="right")
    for pair in found.pairs():
        for state in pair:
            figures = [f"{1000 * statistics.median(values):.2f}" for values in (state.p50, state.p99)]
            p50, p99 = state.against(pair[0])
            style = "bold green" if p99 <= PAGE_TARGET else "bold red"
            ratios = (
                ["", "", ""] if state is pair[0] else [f"{p50:.2f}", Text(f"{p99:.2f}", style), f"≤ {PAGE_TARGET:g}"]
            )
            table.add_row(state.name, *figures, *ratios, str(state.failures))
    return table


def _paints(found: Sequence[Paints]) -> Table:
    table = Table("", title=f"The page in a browser that was never here, {found[0].bytes / 1000:,.0f} kB; ms", **_LOOK)
    for column in ("first paint", "learner shown", "taught until shown", "at most"):
        table.add_column(column, justify="right")
    for state in found:
        medians = [statistics.median(values) for values in (state.first_paint, state.shown, state.updates)]
        table.add_row(state.name, *(f"{value:,.0f}" for value in (*medians, max(state.updates))))
    return table


def _calls(found: TeachingResult) -> Table:
    table = Table("", title=f"One label, {found.classes} classes known; ms", **_LOOK)
    for column in ("p50", "p99"):
        table.add_column(column, justify="right")
    for spent in (found.teach, found.write, found.teach_under_load):
        table.add_row(spent.name, *(f"{1000 * spent.percentile(which):.2f}" for which in (50, 99)))
    return table


def _predictions(found: TeachingResult) -> Table:
    rates = f"{found.rate:,.0f} requests/s, {statistics.median(found.taught):,.0f} labels/s taught"
    table = Table("", title=f"Single-vector Predict at {rates}; ms", **_LOOK)
    for column in ("p50", "p99", "p50 ratio", "p99 ratio", "reach", "failed"):
        table.add_column(column, justify="right")
    for state in (found.idle, found.teaching, found.floor, found.flood):
        figures = [f"{1000 * statistics.median(values):.2f}" for values in (state.p50, state.p99)]
        p50, p99 = state.against(found.idle)
        style = "bold green" if p99 <= TEACHING_TARGET else "bold red"
        ratios = ["", ""] if state is found.idle else [f"{p50:.2f}", Text(f"{p99:.2f}", style=style)]
        reach = f"≤ {TEACHING_TARGET:g}" if state is found.teaching else ""
        table.add_row(state.name, *figures, *ratios, reach, str(state.failures))
    return table


def _throughput(rows: Sequence[Throughput]) -> Table:
    table = Table("", "beside", title="Throughput, ours beside what it could be at most", **_LOOK)
    for column in ("ours", "theirs", "ratio", "reach", "by CPU"):
        table.add_column(column, justify="right")
    for row in rows:
        style = "bold green" if row.ratio >= row.target else "bold red"
        table.add_row(
            f"{row.name}\n[dim]{row.note}[/]" if row.note else row.name,
            row.ceiling_name,
            f"{row.ours.rate:,.0f} {row.unit}",
            f"{row.ceiling.rate:,.0f}",
            Text(f"{row.ratio:.2f}", style=style),
            f"≥ {row.target:g}",
            Text(f"{row.cpu_ratio:.2f}", style="dim"),
        )
    return table


main = entry_point(app, "benchmarks.serving")

if __name__ == "__main__":
    main()
