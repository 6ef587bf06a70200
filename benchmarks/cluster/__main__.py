"""The command line of the cluster's figures, and its tables."""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.cluster.followers import Followers, followers
from benchmarks.cluster.fronts import Alone, alone, on_ray
from benchmarks.cluster.options import PARTS, ClusterOptions
from benchmarks.reporting.machine import describe, machine, versions
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from benchmarks.serving.bench import prepared
from benchmarks.serving.comparison import Throughput
from benchmarks.serving.ingest import ingest_on_postgres
from benchmarks.serving.options import TINY, ServingOptions, Sizes

app = new_app()


@dataclass
class ClusterFigures:
    """What was measured; a part that was not asked for is empty."""

    followers: Followers | None = None
    ingest: Throughput | None = None
    ray: Throughput | None = None
    alone: Alone | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        parts = {"followers": self.followers, "ingest": self.ingest, "ray": self.ray, "alone": self.alone}
        figures = {name: None if part is None else part.to_dict() for name, part in parts.items()}
        return {"versions": versions(), "machine": machine(), "cluster_figures": figures}


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help="followers, ingest, ray or alone; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(help="Of each single measurement.")] = 3.0,
    rounds: Annotated[int, typer.Option(help="In which both sides are measured in turns.")] = 5,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs; figures mean nothing.")] = False,
) -> None:
    """Measure followers, a journal in PostgreSQL, a server that Ray keeps, and what one alone pays for all of it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that Ray and the server that it keeps are ended

    def measure(bar: ProgressBar) -> ClusterFigures:
        parts = tuple(only or PARTS)
        if tiny:
            options = ClusterOptions(parts, 0.2, 1, 1, TINY)  # type: ignore[arg-type] # checked on construction
        else:
            options = ClusterOptions(parts, seconds, rounds)  # type: ignore[arg-type]
        return run(options, bar)

    execute(measure, tables, output=output)


def run(options: ClusterOptions, progress: Any) -> ClusterFigures:
    """Measure one part after the other."""
    result = ClusterFigures()
    with tempfile.TemporaryDirectory(prefix="sharp-cluster-") as name:
        folder = Path(name)
        if "followers" in options.parts:
            progress("followers")
            result.followers = followers(options, folder / "followers")
        if "ingest" in options.parts:
            progress("Learn on PostgreSQL")
            sizes = options.sizes if options.sizes == TINY else Sizes(images_per_class=30, first_epochs=1)
            with prepared(ServingOptions(seconds=options.seconds, sizes=sizes), folder / "ingest") as bench:
                result.ingest = ingest_on_postgres(bench)
        if "ray" in options.parts:
            progress("a server that Ray keeps")
            result.ray = on_ray(options, folder / "ray")
        if "alone" in options.parts:
            progress("a server alone, beside one of before")
            result.alone = alone(options, folder / "alone")
    return result


def tables(result: ClusterFigures) -> Iterator[RenderableType]:
    """What is printed at the end."""
    table = Table("", "beside", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("ours", "theirs", "ratio", "reach"):
        table.add_column(column, justify="right")
    if result.followers is not None:
        found = result.followers
        one, two = (statistics.median(asked.rates) for asked in (found.one, found.two))
        table.add_row("predictions of two followers", "one", f"{two:,.0f}/s", f"{one:,.0f}/s", *_reach(found))
        one, two = (1000 * statistics.median(asked.p50) for asked in (found.one, found.two))
        table.add_row("… seconds until half are answered", "one", f"{two:.1f} ms", f"{one:.1f} ms", f"{two / one:.2f}")
    for row in (result.ingest, result.ray, result.alone.requests if result.alone is not None else None):
        if row is not None:
            rates = (f"{row.ours.rate:,.0f} {row.unit}", f"{row.ceiling.rate:,.0f}")
            table.add_row(row.name, row.ceiling_name, *rates, *_reach(row))
    for cost in (result.alone.start, result.alone.memory) if result.alone is not None else ():
        good = cost.ratio <= cost.target
        figures = (f"{cost.now:.2f} {cost.unit}", f"{cost.before:.2f}")
        table.add_row(cost.name, "before", *figures, _coloured(cost.ratio, good), f"≤ {cost.target:.2f}")
    yield table
    yield Text(describe(machine()), style="dim")


def _reach(figure: Followers | Throughput) -> tuple[Text, str]:
    return _coloured(figure.ratio, figure.ratio >= figure.target), f"≥ {figure.target:g}"


def _coloured(ratio: float, good: bool) -> Text:
    return Text(f"{ratio:.2f}", style="bold green" if good else "bold red")


main = entry_point(app, "benchmarks.cluster")

if __name__ == "__main__":
    main()
