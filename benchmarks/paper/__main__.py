"""The command line of the paper's benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.paper.options import PaperOptions, parse_blurry, parse_seeds, parse_settings
from benchmarks.paper.result import Result
from benchmarks.paper.run import run
from benchmarks.paper.tables import paper_tables
from benchmarks.reporting.runner import ProgressBar, entry_point, execute, new_app

app = new_app()


@app.command()
def command(
    dataset: Annotated[str, typer.Option(help="mnist, fashion-mnist, emnist-letters, cifar10, cifar100 or folder.")],
    data_root: Annotated[Path, typer.Option(help="Where its files lie; of `folder`, the folder of classes itself.")],
    seeds: Annotated[str, typer.Option(help="One run each.")] = "0,1,2",
    fraction: Annotated[float, typer.Option(help="Share of the training set to learn from, by class.")] = 1.0,
    memory: Annotated[str, typer.Option(help="The paper's budget: half, full or double.")] = "full",
    m: Annotated[int | None, typer.Option(help="Previous episodes in short-term memory, 0 to 4.")] = None,
    blurry: Annotated[str | None, typer.Option(metavar="C,ETA", help="Overlapping episodes, e.g. 3,0.3.")] = None,
    boundaries: Annotated[str, typer.Option(help="explicit, or automatic beside it.")] = "explicit",
    preset: Annotated[
        str | None, typer.Option(help="paper, sharp or default; the paper has none for `folder`.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An engine setting; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for result.json and report.html; else below sharp-benchmark/.")
    ] = None,
    validate: Annotated[bool, typer.Option("--validate", help="Judge by part of the training set.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Run the engine's invariants on every learner.")] = False,
    classes_per_episode: Annotated[int, typer.Option(help="Of `folder`; the others have the paper's.")] = 2,
) -> None:
    """Run the paper's benchmark and print our figures beside the paper's."""

    def measure(bar: ProgressBar) -> Result:
        options = PaperOptions(
            dataset=dataset,
            data_root=data_root,
            seeds=parse_seeds(seeds),
            fraction=fraction,
            memory=memory,  # type: ignore[arg-type] # checked on construction, like the next ones
            m=m,
            blurry=None if blurry is None else parse_blurry(blurry),
            boundaries=boundaries,  # type: ignore[arg-type]
            preset=preset or ("default" if dataset == "folder" else "paper"),  # type: ignore[arg-type]
            settings=parse_settings(settings or []),
            validate=validate,
            check=check,
            classes_per_episode=classes_per_episode,
        )
        folder = output or Path("sharp-benchmark") / options.slug
        result = run(options, progress=bar, output=folder)
        bar.console.print(f"written: {folder / 'result.json'}, {folder / 'report.html'}", highlight=False)
        return result

    execute(measure, paper_tables, failed=lambda result: result.broken)


main = entry_point(app, "benchmarks.paper")

if __name__ == "__main__":
    main()
