"""An experiment, and how it is run: seed by seed, its file written after each.

A seed that the same engine finished with the same settings is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import OptionError
from benchmarks.learner.context import Context
from benchmarks.learner.options import LearnerOptions
from benchmarks.learner.summary import Figures, summarise
from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import engine_digest, machine, versions
from benchmarks.reporting.runner import ReportProgress


@dataclass(frozen=True)
class Experiment:
    """One question about the learner, asked of one data set."""

    group: str
    """What is asked, such as `few`."""
    case: str
    """Of what, such as `banking77`."""
    title: str
    """A row's name in the documents."""
    measure: Callable[[Context, int], Figures]
    """What one seed comes to."""
    to_reach: str = ""
    """For the documents, where there is a figure to reach."""
    everything_at_once: float | None = None
    """The paper's accuracy with all examples at once, where it has one."""
    seeds: tuple[int, ...] | None = None
    """Its own, where the seeds asked for do not apply."""

    @property
    def name(self) -> str:
        """Group and case, as `--only` takes them."""
        return f"{self.group}/{self.case}"


@dataclass
class ExperimentResult:
    """The seeds that are finished."""

    experiment: Experiment
    options: LearnerOptions
    runs: list[Figures] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "learner": self.experiment.group,
            "case": self.experiment.case,
            "title": self.experiment.title,
            "settings": self.options.to_dict(),
            "seeds": [run["seed"] for run in self.runs],
            "to_reach": self.experiment.to_reach,
            "everything_at_once": self.experiment.everything_at_once,
            **summarise(self.runs),
            "runs": self.runs,
            "versions": versions(),
            "machine": machine(),
        }

    def resume(self, folder: Path, but: Collection[int] = ()) -> None:
        """Take over the seeds that this engine finished with these settings, but for some."""
        path = self._path(folder)
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if found.get("settings") == self.options.to_dict():
            runs = [run for run in found["runs"] if run.get("engine") == engine_digest()]
            self.runs = [run for run in runs if run["seed"] not in but]

    def add(self, run: Figures, folder: Path) -> None:
        """Take in a seed that is finished, and write it all under the experiment's name."""
        self.runs = sorted([*self.runs, run], key=lambda one: int(one["seed"]))
        write_json(self._path(folder), self.to_dict())

    def _path(self, folder: Path) -> Path:
        return folder / f"learner-{self.experiment.group}-{self.experiment.case}.json"


def chosen(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Those whose group or name was asked for, or all."""
    known = {word for experiment in experiments for word in (experiment.group, experiment.name)}
    for word in only:
        if word not in known:
            raise OptionError(f"no experiment {word!r}: there are {', '.join(e.name for e in experiments)}")
    return [e for e in experiments if not only or e.group in only or e.name in only]


def run_all(
    experiments: Sequence[Experiment], context: Context, output: Path, progress: ReportProgress, again: bool = False
) -> list[ExperimentResult]:
    """Run what is not finished, one after another; each is written after every seed. `again`: whatever is asked for."""
    results: dict[str, ExperimentResult] = {}
    turns: list[tuple[Experiment, int]] = []
    for experiment in experiments:
        seeds = experiment.seeds or context.options.seeds
        result = results[experiment.name] = ExperimentResult(experiment, context.options)
        result.resume(output, but=seeds if again else ())
        finished = {run["seed"] for run in result.runs}
        turns += [(experiment, seed) for seed in seeds if seed not in finished]
    end = max(1, len(turns))
    progress("starting", 0.0, end)
    for number, (experiment, seed) in enumerate(turns):
        title = f"{experiment.name}, seed {seed}"
        context.report = lambda text, share, title=title, at=number: progress(f"{title}: {text}", at + share)  # type: ignore[misc]
        context.report("starting", 0.0)
        found = {"seed": seed, "engine": engine_digest(), **experiment.measure(context, seed)}
        results[experiment.name].add(found, output)
    progress("done", end)
    return list(results.values())
