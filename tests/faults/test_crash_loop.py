"""The crash loop, ten kills of it; and that its checks can fail."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from benchmarks.errors import OptionError
from reliability.crash import __main__ as command
from reliability.crash import checks
from reliability.crash.chaos import Chaos
from reliability.crash.checks import Violations
from reliability.crash.options import LEARNER, CrashOptions
from reliability.crash.stream import NumberedStream
from sharp_server.storage.records import Arrival, NewLearner
from sharp_server.storage.sqlite import learners, schema, streams

OPTIONS = CrashOptions(batches=2, examples=4)


@pytest.mark.parametrize(
    ("store", "kills", "kinds"),
    [
        ("sqlite", 10, ("server", "trainer", "teacher", "connection")),
        ("postgres", 7, ("server", "trainer", "teacher", "database")),
    ],
)
def test_kills_lose_nothing_double_nothing_and_change_nothing(
    store: str, kills: int, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "crash.json"
    arguments = ["--kills", str(kills), "--seed", "5", "--store", store]
    arguments += ["--folder", str(tmp_path / "run"), "--output", str(file)]
    outcome = CliRunner().invoke(command.app, arguments, env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output + (tmp_path / "run" / "server.log").read_text()[-3000:]
    found = json.loads(file.read_text())
    assert found["survived"] == sum(found["kills"].values()) == kills
    assert all(kind in " ".join(found["kills"]) for kind in kinds)
    assert set(found["violations"]) == set(Violations.PROMISES) and not any(found["violations"].values())
    assert found["examples_learned"] == 12 * found["batches"] and found["episodes"] >= kills // 4
    assert found["predictions"] > 0 and found["tensors"] > 20
    assert found["lessons"] > 0 and sum(found["operations"].values()) > 0
    assert f"kills survived: {kills}" in outcome.output


@pytest.fixture
def journal(tmp_path: Path) -> sqlite3.Connection:
    """A journal with two learned episodes of the numbered stream."""
    stream = NumberedStream(OPTIONS)
    connection = schema.connect(tmp_path / "journal.db")
    schema.create(connection)
    learner = learners.create(connection, NewLearner(LEARNER, "uid", b"", "{}", None, None), 9).id
    row = streams.open_stream(connection, learner, "producer", "EXPLICIT")
    for sequence in range(1, 7):
        if stream.is_mark(sequence):
            streams.mark(connection, learner, row.id, sequence)
            continue
        x, y = stream.batch(sequence).x, np.zeros(4, np.int32)
        streams.append(
            connection, Arrival(learner, row.id, sequence, 4, "f4", x.tobytes(), y.tobytes(), ((0, '"a"'),), None)
        )
    connection.execute("UPDATE episodes SET state = 'learned'")
    connection.execute("DELETE FROM examples")
    return connection


def broken(tmp_path: Path, acknowledged: int = 6) -> list[str]:
    """The promises that do not hold."""
    found = Violations()
    app: Any = type("NobodyAsked", (), {"answers": {}, "backwards": [], "nothing_learned": 0.0})()
    checks.in_the_end(tmp_path, NumberedStream(OPTIONS), acknowledged, OPTIONS, app, found)
    return [promise for promise, broken in found.found.items() if broken]


def test_an_account_without_fault_passes(journal: sqlite3.Connection, tmp_path: Path) -> None:
    assert broken(tmp_path) == []


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        ("UPDATE episodes SET state = 'waiting' WHERE number = 2", 0),
        ("DELETE FROM batch_slices WHERE sequence = 4", 0),
        ("UPDATE batch_slices SET sequence = 1 WHERE sequence = 2", 0),
        ("UPDATE batch_slices SET episode = 1 WHERE sequence = 4", 0),
        ("UPDATE batch_slices SET count = 3 WHERE sequence = 5", 0),
        ("INSERT INTO examples VALUES (1, x'00', x'00')", 2),
    ],
)
def test_every_fault_of_the_account_is_found(
    journal: sqlite3.Connection, tmp_path: Path, fault: str, promise: int
) -> None:
    journal.execute(fault)
    assert Violations.PROMISES[promise] in broken(tmp_path)


def test_a_batch_beyond_the_acknowledged_is_found(journal: sqlite3.Connection, tmp_path: Path) -> None:
    assert Violations.PROMISES[1] in broken(tmp_path, acknowledged=3)


def test_a_killed_server_that_lost_what_it_acknowledged_is_found(journal: sqlite3.Connection, tmp_path: Path) -> None:
    stream, found = NumberedStream(OPTIONS), Violations()
    checks.at_death(tmp_path, stream, 6, OPTIONS, found)
    assert found.total == 0
    checks.at_death(tmp_path, stream, 7, OPTIONS, found)
    assert found.total == 1


def test_one_bit_of_difference_between_two_learners_is_found(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    other = values.copy()
    other.view(np.uint8)[5] ^= 1
    for name, array in (("one", values), ("same", values), ("other", other)):
        save_file({"weight": array}, tmp_path / name, {"learner": "{}"})
    found = Violations()
    assert checks.compare(tmp_path / "one", tmp_path / "same", found) == 1 and found.total == 0
    checks.compare(tmp_path / "one", tmp_path / "other", found)
    assert found.total == 1


@pytest.mark.parametrize("kind", ["server", "database"])
def test_a_recovery_counts_from_the_moment_at_which_what_was_killed_is_started_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def takes(seconds: float) -> Callable[..., None]:
        def pass_time(*_: object) -> None:
            now[0] += seconds

        return pass_time

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", takes(7.0))
    killed = Chaos.__new__(Chaos)
    chaos: Any = killed
    chaos._random, chaos._options, chaos._kinds = random.Random(0), CrashOptions(early=0.0), (kind,)
    chaos.kills, chaos.recoveries, chaos.aimed = Counter(), {}, 0
    chaos._postgres = type("Database", (), {"kill": takes(100.0), "start": takes(3.0)})()
    chaos._wait_for_an_operation = chaos._wait_until_moved = takes(0.0)
    chaos.start_server = takes(3.0)

    def kill_server(*_: object) -> None:
        chaos.kills["server"] += 1
        now[0] += 100.0

    chaos.kill_server = kill_server
    producer: Any = type("Producer", (), {"acknowledged": 0, "learned": 0})()
    producer.operator = type("Operator", (), {"under_way": threading.Event()})()
    killed.kills_up_to(2, producer, producer, lambda: None)
    assert chaos.recoveries == {kind: [3.0, 3.0]}


def test_an_option_that_cannot_be_is_named() -> None:
    with pytest.raises(OptionError, match="0"):
        CrashOptions(kills=0)
