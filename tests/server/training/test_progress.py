"""What the trainer reports adds up: examples are counted, not guessed from a rate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from sharp_engine import Learner, LearnerConfig, Progress, preset
from sharp_engine.config import to_dict
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.storage.records import LearnerRow
from sharp_server.training.episode_run import _Observer
from sharp_server.training.protocol import Job, Progressed, Started
from tests.server.learners.test_backlog import episode

PROGRESS = Progress(
    event="step", episode=1, phase=1, phases=2, epoch=1, epochs=4, loss=0.5, ranks={}, seconds=0.0, seconds_left=None,
    examples_per_second=None,
)  # fmt: skip


def job(folder: Path) -> Job:
    return Job("a", "uid", 7, 1, None, LearnerConfig(), False, (8,), {}, folder, "uid-1", folder / "out")


def observed(folder: Path, *progress: Progress) -> list[Progressed]:
    reports: list[Any] = []
    observer = _Observer(job(folder), Learner(preset("default")), reports.append, lambda *_: None)
    for step in (replace(PROGRESS, event="episode-started", phase=0), *progress):
        observer._last = 0.0
        observer(step)
    assert isinstance(reports[0], Started)
    return [report for report in reports if isinstance(report, Progressed)]


def test_each_report_counts_the_examples_since_the_one_before(tmp_path: Path) -> None:
    found = observed(
        tmp_path,
        PROGRESS,
        replace(PROGRESS, seconds=2.0, examples_per_second=100.0),
        replace(PROGRESS, seconds=3.0, examples_per_second=150.0),
        replace(PROGRESS, seconds=3.0, examples_per_second=150.0),
    )
    assert [report.examples for report in found] == [0, 200, 250, 0]
    assert all(report.episode == 7 for report in found)


def test_the_fraction_goes_by_time_where_that_is_known_and_by_phases_else(tmp_path: Path) -> None:
    found = observed(
        tmp_path,
        replace(PROGRESS, phase=2),
        replace(PROGRESS, event="epoch-ended", phase=2, epoch=2),
        replace(PROGRESS, seconds=3.0, seconds_left=1.0),
    )
    assert [report.fraction for report in found] == [0.5, 0.75, 0.75]


def test_an_episode_that_only_the_metric_learns_has_no_phases_and_is_done_when_the_metric_is(tmp_path: Path) -> None:
    reports: list[Any] = []
    observer = _Observer(job(tmp_path), Learner(preset("default")), reports.append, lambda *_: None)
    nothing = replace(PROGRESS, event="episode-started", phase=0, phases=0, epoch=0, epochs=0, loss=None)
    for event in ("episode-started", "metric-ready", "episode-learned"):
        observer(replace(nothing, event=event))
    assert reports[0] == Started(7, 0, 0)
    assert [(report.phase, report.phases, report.fraction) for report in reports[1:]] == [(0, 0, 1.0)]


def test_when_the_metric_is_ready_an_episode_is_as_far_as_the_phases_of_the_network(tmp_path: Path) -> None:
    begun = replace(PROGRESS, event="metric-ready", phase=0, epoch=0, loss=None)
    found = observed(tmp_path, begun, replace(begun, phase=1, seconds=2.0))
    assert [(report.phase, report.phases, report.fraction) for report in found] == [(0, 2, 0.0), (1, 2, 0.5)]


def test_a_learner_adds_the_counts_up() -> None:
    row = LearnerRow(1, "a", "uid", b"", json.dumps(to_dict(LearnerConfig())), None, None, 1.0, 0, None, 0, 0)
    served = ServedLearner(row)
    served.begin_turn(episode(7))
    report = Progressed(7, 1, 2, 1, 4, 0.5, 300, 100.0, 0.5, 2.0)
    served.follow_turn(report, 3)
    served.follow_turn(replace(report, examples=200), 3)
    assert served.trained.per_second() == 50.0, "500 over ten seconds"
    assert served.progress is not None and served.progress.examples_per_second == 100.0
    served.end_turn()
    assert served.progress is None and served.episode is None
