"""The command line of the ring."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.paper.options import parse_blurry, parse_seeds
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app
from benchmarks.ring.options import PRETRAINED_EPOCHS, RingOptions
from benchmarks.ring.result import RingResult
from benchmarks.ring.run import run
from benchmarks.ring.tables import ring_tables

app = new_app()


@app.command()
def command(
    dataset: Annotated[
        str, typer.Option(help="mnist, fashion-mnist, cifar10, cifar100, letters, banking77, folder, vectors …")
    ],
    data_root: Annotated[
        Path, typer.Option(help="Where its files lie; of `folder` the folder of classes, of `vectors` the .npz itself.")
    ],
    only: Annotated[str, typer.Option(help="Contestants or kinds (paper, user, ours), with commas; else all.")] = "",
    seeds: Annotated[str, typer.Option(help="One run each.")] = "0",
    fraction: Annotated[float, typer.Option(help="Share of the training set to learn from, by class.")] = 1.0,
    slow_fraction: Annotated[
        float | None, typer.Option(help="The same for those that train a network by gradients.")
    ] = None,
    blurry: Annotated[str | None, typer.Option(metavar="C,ETA", help="Overlapping episodes, e.g. 3,0.3.")] = None,
    order: Annotated[str | None, typer.Option(help="Of classes: label, or random by the seed.")] = None,
    classes_per_episode: Annotated[int | None, typer.Option(help="Else the paper's, or 2.")] = None,
    memory: Annotated[
        int | None, typer.Option(help="Examples that rivals may keep; else the paper's budget, or 20 per class.")
    ] = None,
    validate: Annotated[bool, typer.Option("--validate", help="Judge by part of the training set.")] = False,
    pretrained: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET|FILE", help="Give those that freeze layers such as learned this data set: mnist, cifar10 …"
        ),
    ] = None,
    pretrained_epochs: Annotated[int, typer.Option(help="Passes over that data set.")] = PRETRAINED_EPOCHS,
    resume_from: Annotated[
        Path | None,
        typer.Option(metavar="RESULT.json", help="Go on from what an earlier ring, perhaps elsewhere, has finished."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run the chosen ones again, also if they are finished.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Of each contestant.")] = 1,
    ring_python: Annotated[
        Path | None, typer.Option(help="Interpreter with the rivals' libraries; else that of `make ring-env`.")
    ] = None,
    launcher: Annotated[
        str, typer.Option(metavar="COMMAND", help="Start each contestant through it, e.g. 'nice -n 19'.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option(help="Folder for result.json and report.html; else below sharp-benchmark/.")
    ] = None,
) -> None:
    """Run our learner beside every rival, each in a process of its own, and compare them on one page."""

    def measure(bar: ProgressBar) -> RingResult:
        options = RingOptions(
            dataset=dataset,
            data_root=data_root,
            seeds=parse_seeds(seeds),
            only=only,
            fraction=fraction,
            slow_fraction=slow_fraction,
            blurry=None if blurry is None else parse_blurry(blurry),
            order=order,  # type: ignore[arg-type] # checked on construction
            classes_per_episode=classes_per_episode,
            memory=memory,
            validate=validate,
            pretrained=pretrained,
            pretrained_epochs=pretrained_epochs,
            threads=threads,
            ring_python=ring_python,
            launcher=shlex.split(launcher),
            resume_from=resume_from,
            again=again,
        )
        folder = output or Path("sharp-benchmark") / f"ring-{options.slug}"
        result = run(options, folder, progress=bar)
        bar.console.print(f"written: {folder / 'result.json'}, {folder / 'report.html'}", highlight=False)
        return result

    execute(measure, ring_tables, failed=lambda result: bool(result.failures))


main = entry_point(app, "benchmarks.ring")

if __name__ == "__main__":
    main()
