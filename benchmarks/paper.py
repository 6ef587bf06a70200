"""The paper's benchmark: learn a sequence of episodes, judge after each, and stand our figures beside the paper's.

    python -m benchmarks.paper --dataset mnist --data-root DIR --seeds 0,1,2 --output DIR

Seeds run one after another in this process. `result.json` and `report.html` are written after every seed, so that a
long run that is stopped leaves what it has. A run with --validate never reads the test set.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import data, published, scenario
from benchmarks.data import Dataset, Images
from benchmarks.errors import BenchmarkError, OptionError
from benchmarks.machine import machine, versions
from benchmarks.options import PaperOptions, parse_blurry, parse_seeds, parse_settings
from benchmarks.recorder import Recorder, RunBar
from benchmarks.report import write_report
from benchmarks.result import Result, SeedRun, write_json
from benchmarks.tables import paper_tables
from sharp_engine import Learner, NoPositivePairError, SharpError
from sharp_engine.config import to_dict

STREAM_BATCH = 128
"""Examples per call of `observe` where the learner finds the boundaries."""


def run(
    options: PaperOptions, *, console: Console | None = None, output: Path | None = None, dataset: Dataset | None = None
) -> Result:
    """Run all seeds; write result and report into `output`, where given, after each. `dataset` saves reading it."""
    console = console or Console(quiet=True)
    checks = _checks() if options.check else None
    dataset = dataset or data.load(options.dataset, options.data_root, test=not options.validate)
    result = _empty_result(options, dataset)
    prepared = [
        data.prepare(dataset, fraction=options.fraction, validate=options.validate, seed=seed) for seed in options.seeds
    ]
    twice = options.boundaries == "automatic"  # once more with boundaries given, to compare with
    with RunBar(console, (1 + twice) * sum(len(train) for train, _ in prepared)) as bar:
        before = 0
        for seed, (train, judge) in zip(options.seeds, prepared, strict=True):
            learner, finished = _run_seed(options, seed, train, judge, dataset, bar, before)
            if twice:
                before += len(train)
                told = replace(options, boundaries="explicit")
                _, beside = _run_seed(told, seed, train, judge, dataset, bar, before)
                finished = replace(finished, accuracy_if_given=beside.figures()["average_accuracy"])
            if checks is not None and not learner.pending_examples:
                finished = replace(finished, checks=tuple(checks.run_all(learner)))
            result = replace(result, runs=(*result.runs, finished), architecture=learner.inspect().architecture)
            before += len(train)
            if output is not None:
                write_json(output / "result.json", result.to_dict())
                write_report(output / "report.html", result)
    return result


def _run_seed(
    options: PaperOptions, seed: int, train: Images, judge: Images, dataset: Dataset, bar: RunBar, before: int
) -> tuple[Learner, SeedRun]:
    classes = len(dataset.classes)
    if options.blurry is not None:
        sequence = scenario.blurry_sequence(classes, options.blurry, seed)
    else:
        sequence = scenario.class_incremental(classes, options.per_episode)
    learner = Learner(options.learner_config(seed))
    recorder = Recorder(learner, judge, classes, bar, before, f"seed {seed}")
    for episode in scenario.deal(train.y, sequence, seed):
        part = train.take(episode.index)
        if options.boundaries == "explicit":
            recorder.offered += len(part)
            learner.learn_episode(part.x, part.y, observer=recorder)
            continue
        for at in range(0, len(part), STREAM_BATCH):
            x, y = part.x[at : at + STREAM_BATCH], part.y[at : at + STREAM_BATCH]
            recorder.offered += len(y)
            learner.observe(x, y, observer=recorder)
    if learner.pending_examples:
        try:
            learner.end_episode(observer=recorder)
        except NoPositivePairError:  # a tail without two examples of one class: told as unlearned below
            pass
    if not recorder.records:
        raise BenchmarkError(f"seed {seed}: {len(train)} examples, and none could be learned from")
    return learner, SeedRun(
        seed=seed,
        given=sequence,
        episodes=tuple(recorder.records),
        confusion=recorder.judge_all(),
        training_examples=len(train),
        unlearned_examples=learner.pending_examples,
    )


def _empty_result(options: PaperOptions, dataset: Dataset) -> Result:
    figures = published.figures(options.dataset, options.memory) if options.blurry is None else {}
    return Result(
        settings={**options.to_dict(), "engine": to_dict(options.learner_config(options.seeds[0]))},
        versions=versions(),
        machine=machine(),
        classes=dataset.classes,
        data={
            "source": dataset.source,
            "training_images": len(dataset.train),
            "test_images": None if dataset.test is None else len(dataset.test),
            "judged_by": "validation images split from the training set" if options.validate else "the test set",
        },
        architecture="",
        published={method: {"mean": f.mean, "std": f.std} for method, f in figures.items()},
        remarks=tuple(_remarks(options, dataset, compared=bool(figures))),
    )


def _remarks(options: PaperOptions, dataset: Dataset, compared: bool) -> list[str]:
    """How our figures differ in kind from the paper's, where they stand beside them, and from final ones."""
    remarks = []
    learned = round(len(dataset.train) * options.fraction * (1.0 - data.HELD_OUT if options.validate else 1.0))
    whole = published.TRAINING_EXAMPLES.get(options.dataset)
    if compared and whole is not None and learned < whole:
        remarks.append(f"Learned from about {learned:,} images; the paper from {whole:,}.")
    if options.validate:
        remarks.append("Judged by validation images split from the training set, not by the test set.")
    if compared and options.m not in (None, 1):
        remarks.append(f"Short-term memory holds {options.m} previous episodes; the paper's figures are for 1.")
    if compared and options.boundaries == "automatic":
        remarks.append("The learner found the episodes' boundaries itself; the paper's are given.")
    return remarks


def _checks() -> ModuleType:
    try:
        return importlib.import_module("sharp_engine.checks")
    except ModuleNotFoundError:
        raise OptionError("this version of sharp_engine has no checks: leave --check away") from None


# ---- command line -----------------------------------------------------------------------------------------------

app = typer.Typer(add_completion=False)


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
    preset: Annotated[str | None, typer.Option(help="paper or default; for `folder` only default.")] = None,
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
    console = Console()
    try:
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
        result = run(options, console=console, output=folder)
    except (BenchmarkError, SharpError) as error:
        Console(stderr=True).print(f"[bold red]cannot run:[/] {error}", highlight=False)
        raise typer.Exit(2) from None
    console.print(*paper_tables(result), sep="\n")
    console.print(f"written: {folder / 'result.json'}, {folder / 'report.html'}", highlight=False)
    if any(wrong for seed_run in result.runs for _, wrong in seed_run.checks or ()):
        raise typer.Exit(1)


def main(arguments: list[str] | None = None, program: str = "python -m benchmarks.paper") -> None:
    """Run the command line; ends the process."""
    app(args=arguments, prog_name=program)


if __name__ == "__main__":
    main()
