"""What is SQLite's own: grouped commits, room for more, a full disk that passes, a damaged log. See `test_contract`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharp_server.errors import JournalUnavailable, RpcError
from sharp_server.storage.records import Arrival, NewLearner
from sharp_server.storage.sqlite import learners, schema, streams
from sharp_server.storage.sqlite.journal import Journal

PLANTED = b"planted-pattern-0123456789"


def run(path: Path, work: Callable[[Journal], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        journal = Journal(path)
        journal.start(asyncio.get_running_loop())
        try:
            await work(journal)
        finally:
            await journal.close()

    asyncio.run(main())


def arrival(learner: int, stream: int, sequence: int, y: list[int], **options: Any) -> Arrival:
    ordinals = np.array(y, np.int32)
    x = b"".join(PLANTED + bytes([label]) for label in y)
    classes = tuple((i, json.dumps(f"class {i}")) for i in sorted(set(y)))
    return Arrival(learner, stream, sequence, len(y), "u1", x, ordinals.tobytes(), classes, ("[27]", "text"), **options)


async def learner_and_stream(journal: Journal) -> tuple[int, int]:
    row = await journal.write(learners.create, NewLearner("a", "uid", b"", "{}", None, None), 10)
    stream = await journal.write(streams.open_stream, row.id, "s", "EXPLICIT")
    return row.id, stream.id


def test_a_commit_is_on_disk_and_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    connection = schema.connect(tmp_path / "journal.db")
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in
             ("journal_mode", "synchronous", "secure_delete")}  # fmt: skip
    connection.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}


def test_another_process_that_reads_the_journal_leaves_the_index_alone(tmp_path: Path) -> None:
    """It would cut the index off if the writer had lost its locks, and the writer would die of a SIGBUS."""
    path = tmp_path / "journal.db"
    connect = f"c = sqlite3.connect('file:{path}?mode=ro', uri=True)"
    read = f"import sqlite3; {connect}; c.execute('SELECT * FROM learners'); c.close()"

    async def work(journal: Journal) -> None:
        await learner_and_stream(journal)
        index = path.with_name("journal.db-shm")
        before = index.stat()
        subprocess.run([sys.executable, "-c", read], check=True)
        assert (index.stat().st_ino, index.stat().st_size) == (before.st_ino, before.st_size)
        assert path.with_name("journal.db-wal").stat().st_size > 0
        await journal.write(learners.create, NewLearner("b", "other", b"", "{}", None, None), 10)

    run(path, work)


def test_what_waits_together_is_committed_together_and_one_fault_takes_nothing_with_it(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        learner, stream = await learner_and_stream(journal)
        before = journal.commits
        arrivals = [arrival(learner, stream, number, [0, 1]) for number in (1, 2, 4, 3)]
        futures = [journal.submit(lambda c, a=a: streams.append(c, a), a.bytes) for a in arrivals]  # type: ignore[misc]
        done = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, RpcError) for result in done] == [False, False, True, False]
        assert journal.commits - before <= 2
        row = await journal.write(streams.open_stream, learner, "s", "EXPLICIT")
        assert (row.durable, row.open_examples) == (3, 6)

    run(tmp_path / "journal.db", work)


class HeldCommit:
    """A connection whose commits wait for a word."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reached, self.may_go = threading.Event(), threading.Event()

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT":
            self.reached.set()
            assert self.may_go.wait(60)
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_there_is_room_again_when_a_group_only_has_to_reach_the_disk_and_no_answer_before_it_has(
    tmp_path: Path,
) -> None:
    async def work(journal: Journal) -> None:
        held = HeldCommit(journal._connection)
        journal._connection = held  # type: ignore[assignment]
        inserting, may_insert = threading.Event(), threading.Event()

        def insert(connection: sqlite3.Connection) -> int:
            inserting.set()
            assert may_insert.wait(60)
            return 1

        await journal.room()
        answer = journal.submit(insert, 1 << 30)
        room = asyncio.ensure_future(journal.room())
        await asyncio.to_thread(inserting.wait, 60)
        await asyncio.sleep(0)
        assert not room.done()
        may_insert.set()
        await asyncio.wait_for(room, 60)
        assert await asyncio.to_thread(held.reached.wait, 60)
        assert not answer.done()
        held.may_go.set()
        assert await asyncio.wait_for(answer, 60) == 1

    run(tmp_path / "journal.db", work)


def test_there_is_room_again_after_a_group_that_could_not_be_written(tmp_path: Path) -> None:
    def full(connection: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    async def work(journal: Journal) -> None:
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                await journal.submit(full, 1 << 30)
            await asyncio.wait_for(journal.room(), 60)

    run(tmp_path / "journal.db", work)


def test_a_full_disk_refuses_everything_of_the_group_and_passes_by_itself(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        learner, stream = await learner_and_stream(journal)
        big = Arrival(learner, stream, 1, 1, "u1", b"x" * 2_000_000, b"\0" * 4, (), None)

        def limit(connection: sqlite3.Connection, pages: int) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        await journal.write(limit, 50)
        with pytest.raises(JournalUnavailable):
            await journal.write(streams.append, big)
        await journal.write(limit, 10_000)
        await journal.write(streams.append, big)
        assert (await journal.write(streams.open_stream, learner, "s", "EXPLICIT")).durable == 1

    run(tmp_path / "journal.db", work)


@pytest.mark.parametrize("offset", [0.3, 0.9])
def test_damage_to_the_log_is_noticed_and_what_came_before_it_stays(tmp_path: Path, offset: float) -> None:
    path = tmp_path / "journal.db"

    async def write(journal: Journal) -> None:
        learner, stream = await learner_and_stream(journal)
        for number in range(1, 20):
            await journal.write(streams.append, arrival(learner, stream, number, [0, 1]))
        copy = path.with_name("journal.db-wal").read_bytes()
        (tmp_path / "saved").write_bytes(copy)
        (tmp_path / "saved-db").write_bytes(path.read_bytes())

    run(path, write)
    wal = bytearray((tmp_path / "saved").read_bytes())
    wal[int(len(wal) * offset)] ^= 0xFF
    path.write_bytes((tmp_path / "saved-db").read_bytes())
    path.with_name("journal.db-wal").write_bytes(wal)

    async def read(journal: Journal) -> None:
        assert journal.dropped_frames > 0
        row = await journal.write(streams.open_stream, 1, "s", "EXPLICIT")
        assert row.durable == row.open_examples // 2 < 19

    run(path, read)
