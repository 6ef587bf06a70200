"""One run of the paper's benchmark: all seeds, one after another, each learner judged after every episode."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from benchmarks import datasets
from benchmarks.datasets import Dataset, Examples
from benchmarks.errors import BenchmarkError, OptionError
from benchmarks.paper import published, scenario
from benchmarks.paper.options import PaperOptions
from benchmarks.paper.recorder import Recorder
from benchmarks.paper.report import write_report
from benchmarks.paper.result import Result, SeedRun
from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from sharp_engine import Learner, NoPositivePairError
from sharp_engine.config import to_dict

STREAM_BATCH = 128
"""Examples per call of `observe` where the learner finds the boundaries."""


def run(
    options: PaperOptions,
    *,
    progress: ReportProgress = silently,
    output: Path | None = None,
    dataset: Dataset | None = None,
) -> Result:
    """Run all seeds; write result and report into `output`, where given, after each. `dataset` saves reading it."""
    checks = _checks() if options.check else None
    dataset = dataset or datasets.load(options.dataset, options.data_root, test=not options.validate)
    result = _empty_result(options, dataset)
    prepared = [
        datasets.prepare(dataset, fraction=options.fraction, validate=options.validate, seed=seed)
        for seed in options.seeds
    ]
    twice = options.boundaries == "automatic"  # once more with boundaries given, to compare with
    progress("starting", 0.0, (1 + twice) * sum(len(train) for train, _ in prepared))
    before = 0
    for seed, (train, judge) in zip(options.seeds, prepared, strict=True):
        learner, finished = _run_seed(options, seed, train, judge, dataset, progress, before)
        if twice:
            before += len(train)
            explicit = replace(options, boundaries="explicit")
            _, beside = _run_seed(explicit, seed, train, judge, dataset, progress, before)
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
    options: PaperOptions,
    seed: int,
    train: Examples,
    judge: Examples,
    dataset: Dataset,
    progress: ReportProgress,
    before: int,
) -> tuple[Learner, SeedRun]:
    classes = len(dataset.classes)
    if options.blurry is not None:
        sequence = scenario.blurry_sequence(classes, options.blurry, seed)
    else:
        sequence = scenario.class_incremental(classes, options.per_episode)
    learner = Learner(options.learner_config(seed))
    recorder = Recorder(learner, judge, classes, progress, before, f"seed {seed}")
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
        except NoPositivePairError:  # a tail without two examples of one class: counted as unlearned below
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
    learned = round(len(dataset.train) * options.fraction * (1.0 - datasets.HELD_OUT if options.validate else 1.0))
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
