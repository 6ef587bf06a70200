"""What all experiments of one command share: the data, read once, and learners, learned once.

Several experiments ask for the same learner (the one that learned all of Banking77 with seed 0, say). It is learned
once, kept in a temporary folder, and each gets a copy that it may change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import datasets
from benchmarks.datasets import Dataset, Examples
from benchmarks.learner.learning import Learned, Report, learn
from benchmarks.learner.options import LearnerOptions
from benchmarks.paper.scenario import Sequence_
from sharp_engine import Learner


@dataclass(frozen=True)
class Split:
    """A data set as one seed sees it."""

    classes: tuple[str, ...]
    train: Examples
    judge: Examples
    """The test set, or examples split off from the training set."""


def _unheard(text: str, share: float) -> None:
    """Report progress to nobody."""


@dataclass
class Context:
    """Data and learners of one command."""

    options: LearnerOptions
    folder: Path
    """For learners; thrown away in the end."""
    report: Report = _unheard
    _loaded: dict[str, Dataset] = field(default_factory=dict)
    _learned: dict[tuple[Any, ...], tuple[Path, Learned]] = field(default_factory=dict)

    def split(self, name: str, seed: int) -> Split:
        """What to learn from and what to judge by."""
        if name not in self._loaded:
            self.report(f"reading {name}", 0.0)
            self._loaded[name] = datasets.load(name, self.options.data_root, test=not self.options.validation)
        dataset = self._loaded[name]
        train, judge = datasets.prepare(
            dataset, fraction=self.options.fraction, validate=self.options.validation, seed=seed
        )
        return Split(dataset.classes, train, judge)

    def learned(
        self, name: str, sequence: Sequence_, seed: int, *, learner_seed: int | None = None, **settings: Any
    ) -> Learned:
        """A copy, to be changed at will, of the learner that learned a sequence of a data set's classes.

        `settings` are engine settings with `__` for a dot. `learner_seed` is `seed` unless it is given.
        """
        options = {key.replace("__", "."): value for key, value in settings.items()}
        learner_seed = seed if learner_seed is None else learner_seed
        key = (name, sequence, seed, learner_seed, tuple(sorted(options.items())))
        if key not in self._learned:
            config = self.options.learner_config(learner_seed).with_options(options)
            found = learn(config, self.split(name, seed).train, sequence, seed, self.report)
            path = self.folder / f"{len(self._learned)}.safetensors"
            found.learner.save(path)
            self._learned[key] = path, found
        path, found = self._learned[key]
        return replace(found, learner=Learner.load(path))
