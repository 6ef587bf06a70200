"""The command line of the speed benchmark, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from benchmarks.speed import growth
from benchmarks.speed.growth import Growth
from benchmarks.speed.measure import PARTS, TINY, Sizes, SpeedOptions, SpeedResult, run
from benchmarks.speed.prediction import PredictionTimes
from benchmarks.speed.teaching import TeachingTimes
from benchmarks.speed.timing import Comparison

app = new_app()

_LOOK: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}


@app.command()
def command(
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PARTS)}; may be repeated.")] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where MNIST lies in torchvision's layout; without, images are made up.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
    preset: Annotated[str, typer.Option(help="Whose schedule the network alone has: paper or sharp.")] = "sharp",
    fraction: Annotated[float, typer.Option(help="Share of MNIST to learn from.")] = 1.0,
    validation: Annotated[
        bool, typer.Option("--validation", help="Judge by part of MNIST's training set; its test set is not read.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Of both sides; else what torch chooses.")] = None,
    device: Annotated[
        str, typer.Option(help="Where both sides compute, such as cuda; off the CPU, the clock's ratios count.")
    ] = "cpu",
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs, in a minute; figures mean nothing.")] = False,
) -> None:
    """Measure learning, answers, teaching, growth and snapshots against their floors and print the ratios."""

    def measure(bar: ProgressBar) -> SpeedResult:
        if threads is not None:
            torch.set_num_threads(threads)
        options = SpeedOptions(
            parts=tuple(only or PARTS),  # type: ignore[arg-type] # checked on construction, like the next one
            data_root=data_root,
            preset=preset,  # type: ignore[arg-type]
            fraction=fraction,
            validation=validation,
            device=device,
            sizes=TINY if tiny else Sizes(),
        )
        return run(options, bar)

    execute(measure, tables, output=output)


def tables(result: SpeedResult) -> Iterator[RenderableType]:
    """What is printed at the end."""
    if result.sequence is not None:
        about = f"{result.data}, accuracy {100 * result.sequence.accuracy:.1f} %"
        yield _comparisons(
            f"The default learner's sequence, CPU seconds\n{about}", result.sequence.comparisons, cpu=True
        )
    if result.answers:
        title = "The default learner's answers against their floor, CPU ms per batch"
        yield _comparisons(title, [answer.comparison for answer in result.answers], cpu=True, scale=1000.0)
    if result.teaching:
        yield _teaching(result.teaching)
    if result.training:
        title = "Training the network alone against the plain dense network, CPU seconds"
        title += f"\n{result.options.preset} preset, {result.data}"
        yield _comparisons(title, result.training, cpu=True)
    if result.prediction:
        yield _prediction(result.prediction)
    if result.growth is not None:
        yield _growth(result.growth)
    if result.snapshot:
        yield _comparisons("Snapshots against writing and reading the bytes, ms", result.snapshot, cpu=False)
    yield Text(describe(machine()), style="dim")
    if result.options.device != "cpu":
        yield Text(f"on {result.options.device}: compare by wall, the processor mostly waits", style="dim")


def _comparisons(title: str, rows: Sequence[Comparison], *, cpu: bool, scale: float = 1.0) -> Table:
    """Learning is compared by processor time, input and output by the clock."""
    table = Table("", title=title, **_LOOK)
    for column in ("ours", "theirs", "ratio", "reach", "by wall" if cpu else "by CPU"):
        table.add_column(column, justify="right")
    for row in rows:
        both = (row.ours.cpu, row.baseline.cpu) if cpu else (1000 * row.ours.wall, 1000 * row.baseline.wall)
        ours, theirs = (scale * seconds for seconds in both)
        name = f"{row.name}\n  over {row.beside}" if row.beside else row.name
        ratio, other = (row.cpu_ratio, row.wall_ratio) if cpu else (row.wall_ratio, row.cpu_ratio)
        table.add_row(
            name, f"{ours:.3f}", f"{theirs:.3f}", *_judged(ratio, row.target), Text(f"{other:.2f}", style="dim")
        )
    return table


def _prediction(rows: Sequence[PredictionTimes]) -> Table:
    title = "Prediction against the dense forward and a matrix product, examples per second"
    table = Table("batch", "memories", "in", title=title, **_LOOK)
    for column in ("ours", "theirs", "CPU ratio", "reach", "no novelty", "by wall"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.batch),
            f"{row.classes} × {row.per_class}",
            row.kind,
            f"{row.batch / row.full.ours.wall:,.0f}",
            f"{row.batch / row.full.baseline.wall:,.0f}",
            *_judged(row.full.cpu_ratio, row.full.target),
            _judged(row.labels_only.cpu_ratio, row.labels_only.target)[0],
            Text(f"{row.full.wall_ratio:.2f}", style="dim"),
        )
    return table


def _teaching(rows: Sequence[TeachingTimes]) -> Table:
    table = Table("", title="Teaching one example, ms", **_LOOK)
    for column in ("classes", "teach", "and predict"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row.kind, str(row.classes), f"{row.teach_ms:.2f}", f"{row.with_prediction_ms:.2f}")
    return table


def _growth(found: Growth) -> Table:
    last = len(found.costs)
    table = Table("", title=f"Growth over {last} episodes of two classes", **_LOOK)
    for column in (f"episode {growth.EARLY}", f"episode {last}", "ratio", "reach"):
        table.add_column(column, justify="right")
    early = growth.EARLY - 1
    cpu = [f"{found.costs[i].whole.cpu:.2f}" for i in (early, -1)]
    table.add_row("CPU seconds", *cpu, *_judged(found.ratio, growth.TARGET))
    table.add_row("CPU seconds, medians of five", "", "", *_judged(found.smooth_ratio, growth.TARGET))
    table.add_row("until the metric answers, medians of five", "", "", *_judged(found.metric_ratio, growth.TARGET))
    table.add_row("the learner's memories, MB", *(f"{found.memories[i] / 1e6:.2f}" for i in (early, -1)), "", "")
    if found.unexplained_bytes is not None:
        resident = [f"{(found.resident[i] or 0) / 1e6:.0f}" for i in (early, -1)]
        table.add_row("process, MB", *resident, "", "")
        table.add_row("beyond its memories, MB an episode", "", f"{found.unexplained_bytes / 1e6:+.2f}", "", "")
    return table


def _judged(ratio: float, target: float | None) -> tuple[Text, str]:
    style = "" if target is None else "bold green" if ratio <= target else "bold red"
    return Text(f"{ratio:.2f}", style=style), "" if target is None else f"≤ {target:g}"


main = entry_point(app, "benchmarks.speed")

if __name__ == "__main__":
    main()
