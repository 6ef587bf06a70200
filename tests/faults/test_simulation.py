"""The server in virtual time: some schedules, the seeds of bugs that others found, and that the checks can fail."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reliability.simulation import __main__ as command
from reliability.simulation.plan import LEARNER, make_plan
from reliability.simulation.schedule import Schedule, run_schedule
from sharp_engine import Learner
from sharp_server.ingest.session import LearnSession
from sharp_server.training import preparation
from sharp_server.training.protocol import Job

pytestmark = [  # a crash drops what was about to be done
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine:pytest.PytestUnraisableExceptionWarning"),
]

BUGS = {
    95: "what a crash left of an episode that was learned stayed in the folder of half-learned ones",
    339: "a class that came again while forgetting it failed was unreadable in the journal",
}
"""Seeds that failed once, and why."""


@pytest.mark.parametrize("first", range(1000, 1020, 10))
def test_no_order_of_events_loses_doubles_or_changes_anything(first: int) -> None:
    events: Counter[str] = Counter()
    for seed in range(first, first + 10):
        result = run_schedule(seed)
        assert result.problems == [], f"python -m reliability.simulation --only {seed}"
        events += result.events
    assert events["crash"] and events["version learned"] and events["version taught"] and events["lesson"]


@pytest.mark.parametrize("seed", BUGS, ids=lambda seed: f"seed {seed}")
def test_a_bug_that_was_found_does_not_come_back(seed: int) -> None:
    assert run_schedule(seed).problems == [], BUGS[seed]


def _run(folder: Path, seed: int, **changes: Any) -> list[str]:
    """The schedule of a seed, with nothing going wrong but what is asked for."""
    quiet: dict[str, Any] = {"crashes": (), "stops": (), "trainer_kills": (), "teacher_kills": (), "full_disks": ()}
    return Schedule(replace(make_plan(seed), **{**quiet, **changes}), folder / "data").run().problems


def test_a_server_stops_as_it_should_on_a_full_disk(tmp_path: Path) -> None:
    lessons = {"learners": (LEARNER,), "lessons": {LEARNER: 3}, "streams": (), "after": (), "operations": ()}
    times = {"seconds": 2.0, "longest_delay": 0.1, "version_seconds": 30.0}
    assert _run(tmp_path, 0, stops=(6.0,), full_disks=((2.0, 9.0),), **lessons, **times) == []


def test_a_snapshot_that_is_replaced_while_it_waits_to_be_restored_is_not_damaged(tmp_path: Path) -> None:
    times = {"seconds": 8.0, "longest_delay": 1.0, "version_seconds": 0.5}
    assert _run(tmp_path, 2, operations=("restore",) * 6, keep=1, **times) == []


def test_a_seed_gives_the_same_order_of_events_every_time() -> None:
    assert run_schedule(5).digest == run_schedule(5).digest != run_schedule(6).digest


def test_an_acknowledgement_that_comes_before_the_disk_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LearnSession._append

    def too_early(session: LearnSession, sequence: int, *rest: object) -> None:
        append(session, sequence, *rest)  # type: ignore[arg-type]
        session._durable, session._acknowledge = sequence, True
        session.mailbox.wake()

    monkeypatch.setattr(LearnSession, "_append", too_early)
    assert any(run_schedule(seed).problems for seed in range(12))


def test_lessons_that_an_episode_leaves_out_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def untaught(job: Job, learner: Learner, *_: object) -> Learner:
        return learner

    monkeypatch.setattr(preparation, "_taught", untaught)
    assert any(run_schedule(seed).problems for seed in range(12))


def test_the_command_runs_schedules_and_names_those_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "simulation.json"
    arguments = ["--schedules", "2", "--leases", "1", "--seed", "3", "--jobs", "1", "--output", str(file)]
    outcome = CliRunner().invoke(command.app, arguments)
    assert outcome.exit_code == 0 and "schedules that held: 3 of 3" in outcome.output
    found = json.loads(file.read_text())
    assert found["schedules"] == 2 and found["failed"] == {} and found["events"]["version"] > 0
    assert found["lease_schedules"] == 1 and found["interleavings"] == 3 and found["seconds"] > 0
    monkeypatch.setattr("reliability.simulation.checks.check_answers", lambda *_: ["made up"])
    outcome = CliRunner().invoke(command.app, ["--only", "3"])
    assert outcome.exit_code == 1 and "--only 3" in outcome.output and "made up" in outcome.output
