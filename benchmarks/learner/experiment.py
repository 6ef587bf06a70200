"""An experiment, and how it is run: seed by seed, its file written after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import OptionError
from benchmarks.learner.context import Context
from benchmarks.learner.options import LearnerOptions
from benchmarks.learner.summary import Figures, summarise
from benchmarks.reporting.files import write_json
from benchmarks.reporting.machine import machine, versions
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

    def write(self, folder: Path) -> Path:
        """Write it under the experiment's name."""
        path = folder / f"learner-{self.experiment.group}-{self.experiment.case}.json"
        write_json(path, self.to_dict())
        return path


def chosen(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Those whose group or name was asked for, or all."""
    known = {word for experiment in experiments for word in (experiment.group, experiment.name)}
    for word in only:
        if word not in known:
            raise OptionError(f"no experiment {word!r}: there are {', '.join(e.name for e in experiments)}")
    return [e for e in experiments if not only or e.group in only or e.name in only]


def run_all(
    experiments: Sequence[Experiment], context: Context, output: Path, progress: ReportProgress
) -> list[ExperimentResult]:
    """Run experiments one after another; each is written after every seed, so that a stopped run leaves what it has."""
    turns = [(e, seed) for e in experiments for seed in e.seeds or context.options.seeds]
    progress("starting", 0.0, len(turns))
    results: dict[str, ExperimentResult] = {}
    for number, (experiment, seed) in enumerate(turns):
        title = f"{experiment.name}, seed {seed}"
        context.report = lambda text, share, title=title, at=number: progress(f"{title}: {text}", at + share)  # type: ignore[misc]
        context.report("starting", 0.0)
        result = results.setdefault(experiment.name, ExperimentResult(experiment, context.options))
        result.runs.append({"seed": seed, **experiment.measure(context, seed)})
        result.write(output)
    progress("done", len(turns))
    return list(results.values())
