"""Watches a learner: reports progress, and records and judges the learner after every episode.

It is the engine's observer, so it sees every episode, also those that the learner found itself. It must never change
the learner.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.errors import BudgetError
from benchmarks.paper import metrics
from benchmarks.paper.metrics import Counts
from benchmarks.paper.result import EpisodeRecord
from benchmarks.reporting.runner import ReportProgress
from sharp_engine import Learner, Progress


@dataclass
class Recorder:
    """The observer of one seed's learner."""

    learner: Learner
    judge: Examples
    classes: int
    report: ReportProgress
    before: int
    """Examples learned by earlier seeds: where the bar starts."""
    title: str

    def __post_init__(self) -> None:
        self.records: list[EpisodeRecord] = []
        self.confusion: Counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        """After the newest episode, on the classes that the learner can name."""
        self.offered = 0
        """Examples that the learner was given so far; whoever gives them counts them here."""
        self._learned = 0
        self._known: set[int] = set()
        self._cpu_started = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of what the engine reports."""
        if progress.event == "episode-started":
            self._cpu_started = time.process_time()
        size = self.offered - self.learner.pending_examples - self._learned  # of the episode in progress
        if progress.event == "episode-learned":
            self._record(progress, size, time.process_time() - self._cpu_started)
            self._learned += size
            self.report(f"{self.title} · episode {progress.episode} learned", self.before + self._learned)
            return
        share = 0.0
        if progress.seconds_left is not None:  # an estimate by steps, so this is the share of the steps done
            share = progress.seconds / max(progress.seconds + progress.seconds_left, 1e-9)
        where = f"episode {progress.episode} · phase {progress.phase}/{progress.phases}"
        if progress.loss is not None:
            where += f" · epoch {progress.epoch}/{progress.epochs} · loss {progress.loss:.3f}"
        self.report(f"{self.title} · {where}", self.before + self._learned + share * size)

    def judge_all(self) -> Counts:
        """The confusion matrix over all classes, also those that were never learned and can only be got wrong."""
        if len(self._known) == self.classes:
            return self.confusion
        return self._confusion(np.arange(len(self.judge)))

    def _record(self, progress: Progress, examples: int, cpu_seconds: float) -> None:
        now = self.learner.inspect()
        if now.stm_bytes > now.stm_budget_bytes:
            raise BudgetError(
                f"after episode {progress.episode} short-term memory holds {now.stm_bytes} bytes, "
                f"more than its {now.stm_budget_bytes}"
            )
        known = {int(label) for label in now.classes}
        self.confusion = self._confusion(np.flatnonzero(np.isin(self.judge.y, sorted(known))))
        self.records.append(
            EpisodeRecord(
                new_classes=tuple(sorted(known - self._known)),
                examples=examples,
                seconds=progress.seconds,
                cpu_seconds=cpu_seconds,
                class_accuracies=metrics.class_accuracies(self.confusion),
                stm_bytes=now.stm_bytes,
                stm_overhead_bytes=now.stm_overhead_bytes,
                stm_budget_bytes=now.stm_budget_bytes,
                stm_examples=now.stm_examples,
                ltm_bytes=now.ltm_bytes,
                ltm_entries=now.ltm_entries,
                units_by_rank={layer.name: layer.ranks for layer in now.layers},
            )
        )
        self._known |= known

    def _confusion(self, index: metrics.Counts) -> Counts:
        chosen = self.judge.take(index)
        predicted = self.learner.predict(chosen.x, novelty=False).labels
        return metrics.confusion_matrix(chosen.y, np.asarray(predicted, dtype=np.int64), self.classes)
