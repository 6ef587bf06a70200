"""What a benchmark run came to: figures per seed, their mean and deviation, and `result.json`.

The top level of `result.json` holds means over seeds under plain names, `std` the deviations (of the population; 0 for
one seed) under the same names, and `runs` the same figures seed by seed. Where seeds differ in their number of episodes
(blurry sequences, found boundaries), a mean is over the seeds that got that far. NaN is written as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.paper import metrics
from benchmarks.paper.metrics import Counts, Floats

LISTS = ("accuracy_after_episode", "seconds_per_episode", "cpu_seconds_per_episode", "stm_bytes", "ltm_bytes")
SCALARS = ("average_accuracy", "forgetting", "backward_transfer")


@dataclass(frozen=True)
class EpisodeRecord:
    """The learner right after one episode."""

    new_classes: tuple[int, ...]
    """Classes that it could name for the first time."""
    examples: int
    seconds: float
    cpu_seconds: float
    class_accuracies: Floats
    """(classes,) NaN for those not seen yet."""
    stm_bytes: int
    stm_overhead_bytes: int
    stm_budget_bytes: int
    stm_examples: int
    ltm_bytes: int
    ltm_entries: int
    units_by_rank: dict[str, dict[int, int]]
    """Per layer: how many units have which rank."""


@dataclass(frozen=True)
class SeedRun:
    """One seed's run."""

    seed: int
    given: tuple[tuple[int, ...], ...]
    """The classes of each episode of the stream."""
    episodes: tuple[EpisodeRecord, ...]
    """The episodes learned; as many as given unless the learner found them itself."""
    confusion: Counts
    """After the last episode: (classes, classes)."""
    training_examples: int
    unlearned_examples: int = 0
    """Left at the end of a stream, too few to learn from."""
    accuracy_if_given: float | None = None
    """Where the learner found the boundaries: average accuracy on the same stream with boundaries given."""
    checks: tuple[tuple[str, str | None], ...] | None = None
    """Invariants with what is wrong, where they were asked for."""

    @property
    def matrix(self) -> Floats:
        """R[i, j]: accuracy, after episode i, on the classes first seen in episode j."""
        return metrics.accuracy_matrix(
            [e.class_accuracies for e in self.episodes], [e.new_classes for e in self.episodes]
        )

    def figures(self) -> dict[str, Any]:
        """Everything that is averaged over seeds."""
        matrix = self.matrix
        every = range(len(self.confusion))
        return {
            "accuracy_after_episode": [metrics.mean_over(e.class_accuracies, every) for e in self.episodes],
            "accuracy_matrix": matrix.tolist(),
            "average_accuracy": metrics.average_accuracy(self.confusion),
            "forgetting": metrics.forgetting(matrix),
            "backward_transfer": metrics.backward_transfer(matrix),
            "seconds_per_episode": [e.seconds for e in self.episodes],
            "cpu_seconds_per_episode": [e.cpu_seconds for e in self.episodes],
            "stm_bytes": [e.stm_bytes for e in self.episodes],
            "ltm_bytes": [e.ltm_bytes for e in self.episodes],
        }

    def to_dict(self, classes: Sequence[str]) -> dict[str, Any]:
        """Plain JSON values."""
        last = self.episodes[-1]
        return {
            "seed": self.seed,
            **self.figures(),
            "episodes_given": len(self.given),
            "episodes_learned": len(self.episodes),
            "sequence": [[classes[c] for c in episode] for episode in self.given],
            "new_classes": [[classes[c] for c in e.new_classes] for e in self.episodes],
            "examples_per_episode": [e.examples for e in self.episodes],
            "training_examples": self.training_examples,
            "unlearned_examples": self.unlearned_examples,
            "class_accuracy": dict(zip(classes, metrics.class_accuracies(self.confusion).tolist(), strict=True)),
            "confusion_matrix": self.confusion.tolist(),
            "units_by_rank": [e.units_by_rank for e in self.episodes],
            "stm_budget_bytes": last.stm_budget_bytes,
            "stm_overhead_bytes": [e.stm_overhead_bytes for e in self.episodes],
            "stm_examples": [e.stm_examples for e in self.episodes],
            "ltm_entries": [e.ltm_entries for e in self.episodes],
            "average_accuracy_if_given": self.accuracy_if_given,
            "checks": None if self.checks is None else [{"check": c, "wrong": w} for c, w in self.checks],
        }


@dataclass(frozen=True)
class Result:
    """All seeds' runs of one setting."""

    settings: dict[str, Any]
    """What was asked for, and under `engine` the settings of the learner."""
    versions: dict[str, str | None]
    machine: dict[str, Any]
    classes: tuple[str, ...]
    data: dict[str, Any]
    """Where the images came from and how many there were."""
    architecture: str
    published: dict[str, dict[str, float]]
    """The paper's figures, in %, where it has any for this."""
    remarks: tuple[str, ...] = ()
    """How our figures differ in kind from the paper's."""
    runs: tuple[SeedRun, ...] = field(default=())

    def mean(self, name: str) -> Any:
        """Mean over seeds of a figure of `SeedRun.figures`."""
        return _over_seeds([run.figures()[name] for run in self.runs], np.nanmean)

    def std(self, name: str) -> Any:
        """Deviation over seeds."""
        return _over_seeds([run.figures()[name] for run in self.runs], np.nanstd)

    def if_given(self) -> tuple[float, float] | None:
        """Where the learner found the boundaries: mean and deviation of average accuracy with boundaries given."""
        known = [run.accuracy_if_given for run in self.runs if run.accuracy_if_given is not None]
        return (float(np.mean(known)), float(np.std(known))) if known else None

    @property
    def broken(self) -> bool:
        """Whether an invariant of the engine was checked and does not hold."""
        return any(wrong for run in self.runs for _, wrong in run.checks or ())

    def confusion(self) -> Counts:
        """Summed over seeds: (classes, classes)."""
        total: Counts = np.sum([run.confusion for run in self.runs], axis=0)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: means on top, deviations and single runs below."""
        names = (*SCALARS, "accuracy_matrix", *LISTS)
        given, given_std = self.if_given() or (None, None)
        return {
            "version": self.versions["engine"],
            "settings": self.settings,
            "seeds": [run.seed for run in self.runs],
            **{name: self.mean(name) for name in names},
            "average_accuracy_if_given": given,
            "std": {**{name: self.std(name) for name in names}, "average_accuracy_if_given": given_std},
            "seconds": sum(e.seconds for run in self.runs for e in run.episodes),
            "remarks": list(self.remarks),
            "published": self.published,
            "versions": self.versions,
            "machine": self.machine,
            "data": self.data,
            "architecture": self.architecture,
            "classes": list(self.classes),
            "runs": [run.to_dict(self.classes) for run in self.runs],
        }


def _over_seeds(values: list[Any], reduce: Callable[..., Any]) -> Any:
    """Reduce numbers, lists or square matrices over seeds, padding shorter ones with NaN."""
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    side = max(max(array.shape, default=0) for array in arrays)
    stacked = np.full((len(arrays), *[side] * arrays[0].ndim), np.nan)  # (seeds, …)
    for seed, array in enumerate(arrays):
        there: tuple[int | slice, ...] = (seed, *(slice(n) for n in array.shape))
        stacked[there] = array
    known = ~np.isnan(stacked).all(axis=0)
    reduced = np.full(stacked.shape[1:], np.nan)
    reduced[known] = reduce(stacked[:, known], axis=0)
    return reduced.tolist()
