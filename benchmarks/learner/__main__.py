"""The command line of the learner's experiments, and their tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.learner import corrections, few, novelty, sequences, shares
from benchmarks.learner.context import Context
from benchmarks.learner.experiment import ExperimentResult, chosen, run_all
from benchmarks.learner.options import LearnerOptions
from benchmarks.paper.options import parse_seeds, parse_settings
from benchmarks.reporting.learner_tables import GROUPS
from benchmarks.reporting.machine import describe, machine
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app

app = new_app()

EXPERIMENTS = (
    *sequences.EXPERIMENTS,
    *shares.EXPERIMENTS,
    *corrections.EXPERIMENTS,
    *few.EXPERIMENTS,
    *novelty.EXPERIMENTS,
)
"""In this order, so that learners which several experiments need are asked for one after another."""

RESULTS = Path(__file__).parents[1] / "results"
ELSEWHERE = Path("sharp-benchmark") / "learner"


@dataclass(frozen=True)
class Found:
    """All experiments of one command; each has been written to a file of its own already."""

    results: list[ExperimentResult]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"results": [result.to_dict() for result in self.results]}


@app.command()
def command(
    data_root: Annotated[Path, typer.Option(help="Where the data sets lie; see python -m pydoc benchmarks.learner.")],
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"A group ({', '.join(GROUPS)}) or an experiment, few/banking77; may be repeated."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="One run each.")] = "0,1,2",
    validation: Annotated[
        bool, typer.Option("--validation", help="Judge by part of the training sets; test sets are not read.")
    ] = False,
    fraction: Annotated[float, typer.Option(help="Share of the training sets to learn from, by class.")] = 1.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An engine setting; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; else benchmarks/results, or sharp-benchmark/learner for trials."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch; else what torch chooses.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure seeds again that this engine has finished.")] = False,
) -> None:
    """Measure what the default learner is worth: class by class, with few examples, corrected, with unknown classes."""

    def measure(bar: ProgressBar) -> Found:
        if threads is not None:
            torch.set_num_threads(threads)
        options = LearnerOptions(
            data_root=data_root,
            seeds=parse_seeds(seeds),
            validation=validation,
            fraction=fraction,
            settings=parse_settings(settings or []),
        )
        experiments = chosen(EXPERIMENTS, only or [])
        folder = output or (RESULTS if options.for_the_record else ELSEWHERE)
        with tempfile.TemporaryDirectory(prefix="sharp-learners-") as learners:
            results = run_all(experiments, Context(options, Path(learners)), folder, bar, again)
        bar.console.print(f"written: {folder}/learner-*.json", highlight=False)
        return Found(results)

    execute(measure, tables)


def tables(found: Found) -> Iterator[RenderableType]:
    """What is printed at the end."""
    for group, shape in GROUPS.items():
        results = [result for result in found.results if result.experiment.group == group]
        if not results:
            continue
        judged = "validation examples" if results[0].options.validation else "the test sets"
        table = Table(
            title=f"{group}: judged by {judged}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
        )
        for column in shape.columns:
            table.add_column(column)
        for result in results:
            for row in shape.rows(result.to_dict()):
                table.add_row(*(cell.replace("**", "") for cell in row))
        yield table
    yield Text(describe(machine()), style="dim")


main = entry_point(app, "benchmarks.learner")

if __name__ == "__main__":
    main()
