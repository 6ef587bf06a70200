"""Runs a ring: writes streams, starts one process per contestant and seed, judges, and keeps what is finished.

A contestant that breaks does not end the ring: its last words stand in the result, and the command fails in the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.datasets import Dataset
from benchmarks.errors import BenchmarkError, OptionError
from benchmarks.paper import published, scenario
from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import describe, engine_digest, machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from benchmarks.ring import environment, pretrained, roster
from benchmarks.ring.options import RingOptions
from benchmarks.ring.pretrained import Pretrained
from benchmarks.ring.protocol import PROGRESS, Ints, Outcome, Stream, Task
from benchmarks.ring.report import write_report
from benchmarks.ring.result import RingResult, Run, Standing, judge, stored_runs
from benchmarks.ring.roster import Entry

ROOT = Path(__file__).parents[2]


class ContestantError(BenchmarkError):
    """A contestant's process ended without an outcome."""


@dataclass(frozen=True)
class Bout:
    """One contestant with one seed."""

    entry: Entry
    seed: int
    fraction: float
    sequence: scenario.Sequence_
    memory: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.entry.name}-{self.seed}"

    @property
    def key(self) -> str:
        """A digest of all it depends on but the code: the same key need not be run again."""
        what = [self.settings, self.entry.name, self.seed, self.fraction, self.sequence, self.memory]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def engine(self) -> str:
        """A digest of the engine as it is now, for ours; an older one's run is shown as such and run again."""
        return engine_digest() if self.entry.kind == "ours" else ""


def run(
    options: RingOptions,
    output: Path,
    *,
    progress: ReportProgress = silently,
    dataset: Dataset | None = None,
) -> RingResult:
    """Run what is not finished; write result and report into `output` after each contestant."""
    dataset = dataset or datasets.load(options.dataset, options.data_root, test=not options.validate)
    ring = Ring(options, output, dataset, pretrained.prepare(options, dataset, output, progress))
    if options.resume_from is not None:
        ring.take_over(options.resume_from)
    bouts = [bout for bout in ring.bouts(roster.chosen(options.only)) if options.again or ring.finished(bout) is None]
    ring.require_environment(bouts)
    progress("starting", 0.0, float(max(1, len(bouts))))
    with tempfile.TemporaryDirectory(prefix="sharp-ring-") as folder:
        for number, bout in enumerate(bouts):
            title = f"{bout.entry.title} · seed {bout.seed} · {number + 1} of {len(bouts)}"
            progress(title, float(number))
            try:
                for share in ring.fight(bout, Path(folder)):
                    progress(title, number + share)
            except ContestantError as error:
                ring.failures[bout.name] = str(error)
            ring.write()
    return ring.write()


@dataclass
class Ring:
    """A data set, and what is known of every contestant on it."""

    options: RingOptions
    output: Path
    dataset: Dataset
    pretrained: Pretrained | None = None
    failures: dict[str, str] = field(default_factory=dict)
    _truths: dict[int, Ints] = field(default_factory=dict)

    @property
    def vectors(self) -> bool:
        """Whether examples are vectors."""
        return self.dataset.train.x.ndim == 2

    def unfit(self, entry: Entry) -> str | None:
        """Why a contestant cannot stand in this ring."""
        reason = entry.unfit(
            vectors=self.vectors,
            known=bool(published.figures(self.options.settings_of, "full")),
            blurry=self.options.blurry is not None,
            pretrained=self.pretrained is not None,
        )
        if reason is None and self.pretrained is not None and entry.freezes is not None:
            return self.pretrained.lacks(entry.freezes)
        return reason

    @property
    def settings(self) -> dict[str, Any]:
        """What every contestant's figures depend on."""
        return {**self.options.to_dict(), **({"pretrained": self.pretrained.to_dict()} if self.pretrained else {})}

    @property
    def _stored_settings(self) -> dict[str, Any]:
        return {**self.settings, "memory": self.options.memory_for(len(self.dataset.classes))}

    @property
    def machine(self) -> dict[str, Any]:
        """The one that contestants run on now."""
        return {**machine(), "threads": self.options.threads}

    def bouts(self, entries: tuple[Entry, ...]) -> list[Bout]:
        """Seed by seed, so that a ring that is stopped has compared all it has."""
        return [
            self.bout(entry, seed, self.options.fraction_of(entry.slow))
            for seed in self.options.seeds
            for entry in entries
            if self.unfit(entry) is None
        ]

    def bout(self, entry: Entry, seed: int, fraction: float) -> Bout:
        """A contestant with a seed."""
        classes = len(self.dataset.classes)
        sequence, memory = self.options.sequence(classes, seed), self.options.memory_for(classes)
        return Bout(entry, seed, fraction, sequence, memory, self.settings)

    def finished(self, bout: Bout) -> Run | None:
        """What is kept of a bout, if it is the same."""
        path = self._kept(bout)
        found = Run.read(path) if path.is_file() else None
        return found if found is not None and (found.key, found.engine) == (bout.key, bout.engine) else None

    def take_over(self, stored: Path) -> None:
        """Keep the runs of a stored result that are not there yet; raises if it is of another ring."""
        settings, runs = stored_runs(stored)
        if settings != self._stored_settings:
            raise OptionError(f"{stored} is the result of another ring: {settings}")
        known = {entry.name: entry for entry in roster.ROSTER}
        for run in runs:
            if run.contestant in known:
                bout = self.bout(known[run.contestant], run.seed, run.fraction)
                if not self._kept(bout).is_file():
                    replace(run, key=bout.key).write(self._kept(bout))

    def require_environment(self, bouts: list[Bout]) -> None:
        """Raise unless there is an interpreter for everyone, before hours are spent."""
        needing = [bout.entry.title for bout in bouts if bout.entry.library]
        if needing and environment.interpreter(self.options.ring_python) is None:
            raise OptionError(
                f"{needing[0]} needs the ring's environment: make it with `make ring-env`, or name its interpreter "
                "with --ring-python; `--only` can leave such contestants out"
            )

    def fight(self, bout: Bout, folder: Path) -> Iterator[float]:
        """Run a bout, keep its figures; yields the share that is done."""
        stream, examples = self._stream(bout, folder)
        task_path, outcome_path = folder / f"{bout.name}.task.json", folder / f"{bout.name}.outcome.json"
        Task(
            contestant=bout.entry.name,
            dataset=self.options.dataset,
            seed=bout.seed,
            classes=len(self.dataset.classes),
            sequence=bout.sequence,
            memory=bout.memory,
            blurry=self.options.blurry is not None,
            fraction=bout.fraction,
            threads=self.options.threads,
            stream=str(stream),
            outcome=str(outcome_path),
            pretrained=str(self.pretrained.path.resolve()) if self.pretrained else "",
        ).write(task_path)
        log = self.output / "logs" / f"{bout.name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            yield from self._process(bout, task_path, errors)
        if not outcome_path.is_file():
            said = log.read_text(encoding="utf-8").strip().splitlines()
            raise ContestantError(said[-1] if said else "ended without a word")
        outcome, answers = Outcome.read(outcome_path)
        outcome = replace(outcome, versions={**outcome.versions, "commit": versions()["commit"] or "unknown"})
        found = judge(
            outcome,
            answers,
            self._truths[bout.seed],
            bout.sequence,
            len(self.dataset.classes),
            key=bout.key,
            engine=bout.engine,
            machine=describe(self.machine),
            fraction=bout.fraction,
            training_examples=examples,
        )
        found.write(self._kept(bout))

    def write(self) -> RingResult:
        """The result of all that is finished, and its report."""
        result = self.result()
        if result.standings:
            write_json(self.output / "result.json", result.to_dict())
            write_report(self.output / "report.html", result)
        return result

    def result(self) -> RingResult:
        """Of all contestants that are finished, also those that were not chosen now, whatever their fraction."""
        standings, absent = [], {}
        for entry in roster.ROSTER:
            reason = self.unfit(entry)
            runs = [] if reason else self._all_finished(entry)
            if runs:
                outdated = runs[0].engine != self.bout(entry, runs[0].seed, runs[0].fraction).engine
                standings.append(Standing(entry, tuple(runs), outdated))
            else:
                absent[entry.title] = reason or "not run"
        standings.sort(key=lambda standing: -(standing.mean("accuracy") or 0.0))
        test = self.dataset.test
        plain = self.options.blurry is None and self.pretrained is None
        compared = plain and self.options.order in (None, "label")
        figures = published.figures(self.options.dataset, "full") if compared else {}
        return RingResult(
            settings=self._stored_settings,
            data={
                "source": self.dataset.source,
                "classes": len(self.dataset.classes),
                "training_examples": len(self.dataset.train),
                "test_examples": None if test is None else len(test),
                "judged_by": "validation examples" if self.options.validate else "the test set",
            },
            published={method: {"mean": f.mean, "std": f.std} for method, f in figures.items()},
            standings=tuple(standings),
            absent=absent,
            versions=versions(),
            machine=self.machine,
            failures=dict(self.failures),
        )

    def _all_finished(self, entry: Entry) -> list[Run]:
        """Its runs of any seed; of several fractions only those of the largest, of several engines of the newest."""
        files = sorted((self.output / "runs").glob(f"{entry.name}-*.json"))
        runs = [run for run in map(Run.read, files) if run.contestant == entry.name]
        runs = [run for run in runs if run.key == self.bout(entry, run.seed, run.fraction).key]
        current = [run for run in runs if run.engine == self.bout(entry, run.seed, run.fraction).engine]
        runs = current or runs
        largest = max((run.fraction for run in runs), default=1.0)
        return sorted((run for run in runs if run.fraction == largest), key=lambda run: run.seed)

    def _kept(self, bout: Bout) -> Path:
        return self.output / "runs" / f"{bout.name}.json"

    def _stream(self, bout: Bout, folder: Path) -> tuple[Path, int]:
        """The stream of a seed and a fraction, written once, and how many examples it has."""
        train, test = datasets.prepare(
            self.dataset, fraction=bout.fraction, validate=self.options.validate, seed=bout.seed
        )
        self._truths[bout.seed] = test.y
        path = folder / f"stream-{bout.seed}-{bout.fraction:g}.npz"
        if not path.is_file():
            episodes = scenario.deal(train.y, bout.sequence, bout.seed)
            index = np.concatenate([episode.index for episode in episodes])
            ends = np.cumsum([len(episode.index) for episode in episodes])
            Stream(train.x[index], train.y[index], ends, test.x).write(path)
        return path, len(train)

    def _process(self, bout: Bout, task: Path, errors: Any) -> Iterator[float]:
        python = environment.interpreter(self.options.ring_python) if bout.entry.library else Path(sys.executable)
        command = [*self.options.launcher, str(python), "-m", "benchmarks.ring.worker", str(task)]
        threads = str(self.options.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        variables = {**os.environ, **dict.fromkeys(names, threads), "PYTHONWARNINGS": "ignore"}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.startswith(PROGRESS):
                        yield min(1.0, float(line.removeprefix(PROGRESS)))
            except BaseException:
                process.terminate()
                raise
