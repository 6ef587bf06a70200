"""What a ring came to: figures of every contestant and seed, judged all by the same code.

`result.json` holds one record per contestant with `mean` and `std` over its seeds and every run; shares are in [0, 1].
A run is kept in a file of its own as soon as it is finished, under a key of all it depends on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper import metrics
from benchmarks.reporting.files import write_json
from benchmarks.reporting.ring_tables import OUTDATED
from benchmarks.ring.protocol import Ints, Outcome
from benchmarks.ring.roster import Entry

SCALARS = (
    "accuracy", "forgetting", "backward_transfer", "learn_cpu_seconds", "answer_cpu_seconds_per_1000", "kept_bytes",
    "raw_bytes", "peak_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One contestant with one seed, judged."""

    key: str
    contestant: str
    seed: int
    fraction: float
    training_examples: int
    accuracy: float
    """Mean over all classes of the share of right answers, after the last episode."""
    accuracy_after_episode: tuple[float, ...]
    """On the classes seen so far; NaN where it was not judged."""
    forgetting: float | None
    backward_transfer: float | None
    learn_cpu_seconds: float
    answer_cpu_seconds_per_1000: float
    kept_bytes: int
    raw_bytes: int
    peak_bytes: int
    resumes_exactly: bool | None
    settings: dict[str, Any]
    versions: dict[str, str]
    engine: str = ""
    """Of ours, a digest of the engine that learned."""
    machine: str = ""
    """That it ran on; empty where an earlier version did not say."""

    def write(self, path: Path) -> None:
        """As a file, complete or not at all."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Run:
        """Of a file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "accuracy_after_episode": _numbers(values["accuracy_after_episode"])})


def stored_runs(path: Path) -> tuple[dict[str, Any], list[Run]]:
    """The settings of a `result.json`, and every run in it; keys are left empty."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    runs = []
    for record in stored["contestants"]:
        for values in record["runs"]:
            commit = {"commit": values["commit"]} if values.get("commit") else {}
            runs.append(
                Run(
                    key="",
                    contestant=record["name"],
                    seed=values["seed"],
                    fraction=record["fraction"],
                    training_examples=values["training_examples"],
                    accuracy_after_episode=_numbers(values["accuracy_after_episode"]),
                    resumes_exactly=record["resumes_exactly"],
                    settings=record["settings"],
                    versions={**record["versions"], **commit},
                    engine=values.get("engine", ""),
                    machine=values.get("machine", ""),
                    **{name: values[name] for name in SCALARS},
                )
            )
    return stored["settings"], runs


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(float("nan") if value is None else value for value in values)


def judge(
    outcome: Outcome,
    answers: Ints,
    truth: Ints,
    sequence: Sequence[Sequence[int]],
    classes: int,
    *,
    key: str,
    engine: str = "",
    machine: str = "",
    fraction: float,
    training_examples: int,
) -> Run:
    """Figures from answers (times judged, test examples)."""
    accuracies, groups, seen = [], [], set[int]()
    by_episode = dict(zip(outcome.judged_after, answers, strict=True))
    after = []
    for number, episode in enumerate(sequence, 1):
        groups.append(tuple(sorted(set(episode) - seen)))
        seen |= set(episode)
        if number not in by_episode:
            after.append(float("nan"))
            continue
        known = np.flatnonzero(np.isin(truth, sorted(seen)))
        confusion = metrics.confusion_matrix(truth[known], by_episode[number][known], classes)
        accuracies.append(metrics.class_accuracies(confusion))
        after.append(metrics.mean_over(accuracies[-1], range(classes)))
    final = metrics.confusion_matrix(truth, answers[-1], classes)
    matrix = metrics.accuracy_matrix(accuracies, groups) if len(accuracies) == len(groups) else None
    return Run(
        key=key,
        contestant=outcome.contestant,
        seed=outcome.seed,
        fraction=fraction,
        training_examples=training_examples,
        accuracy=metrics.average_accuracy(final),
        accuracy_after_episode=tuple(after),
        forgetting=None if matrix is None else metrics.forgetting(matrix),
        backward_transfer=None if matrix is None else metrics.backward_transfer(matrix),
        learn_cpu_seconds=sum(outcome.learn_cpu_seconds),
        answer_cpu_seconds_per_1000=1000 * outcome.answer_cpu_seconds / outcome.answered,
        kept_bytes=outcome.kept_bytes,
        raw_bytes=outcome.raw_bytes,
        peak_bytes=outcome.peak_bytes,
        resumes_exactly=outcome.resumes_exactly,
        settings=outcome.settings,
        versions=outcome.versions,
        engine=engine,
        machine=machine,
    )


@dataclass(frozen=True)
class Standing:
    """A contestant with all its finished seeds."""

    entry: Entry
    runs: tuple[Run, ...]
    outdated: bool = False
    """Whether an engine learned that is no longer ours."""

    @property
    def title(self) -> str:
        """As tables name it, with a mark where it is outdated."""
        return f"{self.entry.title} {OUTDATED}" if self.outdated else self.entry.title

    def mean(self, name: str) -> float | None:
        """Over seeds; absent where it has no such figure."""
        return self._over(name, np.mean)

    def std(self, name: str) -> float | None:
        """Over seeds, of the population."""
        return self._over(name, np.std)

    def after_episode(self) -> list[float]:
        """Mean accuracy after each episode, as far as all seeds got."""
        length = min(len(run.accuracy_after_episode) for run in self.runs)
        by_seed = np.array([run.accuracy_after_episode[:length] for run in self.runs])  # (seeds, episodes)
        return [float(value) for value in by_seed.mean(0)]

    @property
    def keeps_raw(self) -> bool:
        """Whether it holds examples as they came."""
        return any(run.raw_bytes > 0 for run in self.runs)

    @property
    def resumes_exactly(self) -> bool | None:
        """In all seeds; absent where it could not be tried."""
        found = {run.resumes_exactly for run in self.runs}
        return None if None in found else found == {True}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        entry = self.entry
        return {
            "name": entry.name,
            "title": self.title,
            "kind": entry.kind,
            "at_once": entry.at_once,
            "without_boundaries": entry.without_boundaries,
            "needs_classes": entry.needs_classes,
            "forgets": entry.forgets,
            "keeps_raw": self.keeps_raw,
            "resumes_exactly": self.resumes_exactly,
            "published": entry.published,
            "fraction": self.runs[0].fraction,
            "seeds": [run.seed for run in self.runs],
            "mean": {name: self.mean(name) for name in SCALARS},
            "std": {name: self.std(name) for name in SCALARS},
            "accuracy_after_episode": self.after_episode(),
            "settings": self.runs[0].settings,
            "versions": self.runs[0].versions,
            "runs": [
                {
                    "seed": run.seed,
                    "training_examples": run.training_examples,
                    "commit": run.versions.get("commit", ""),
                    "machine": run.machine,
                    "engine": run.engine,
                    **{name: getattr(run, name) for name in SCALARS},
                    "accuracy_after_episode": run.accuracy_after_episode,
                }
                for run in self.runs
            ],
        }

    def _over(self, name: str, reduce: Any) -> float | None:
        values = [getattr(run, name) for run in self.runs]
        return None if any(value is None for value in values) else float(reduce(values))


@dataclass(frozen=True)
class RingResult:
    """All that is finished."""

    settings: dict[str, Any]
    data: dict[str, Any]
    published: dict[str, dict[str, float]]
    """The paper's figures, in %, where it has any for this."""
    standings: tuple[Standing, ...]
    """The most accurate first."""
    absent: dict[str, str]
    """Contestants that are not there, by title, and why."""
    versions: dict[str, str | None]
    machine: dict[str, Any]
    failures: dict[str, str]
    """Contestants that broke, by name and seed, with the last line they said."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "ring": self.settings["dataset"],
            "settings": self.settings,
            "data": self.data,
            "contestants": [standing.to_dict() for standing in self.standings],
            "absent": self.absent,
            "failures": self.failures,
            "published": self.published,
            "versions": self.versions,
            "machine": self.machine,
        }
