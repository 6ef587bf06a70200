"""What is PostgreSQL's own: migrations, grouped commits, partitions, a server that goes away. See `test_contract`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devtools.postgres_process import PostgresProcess
from sharp_server.errors import JournalUnavailable, RpcError, StoreUnavailable
from sharp_server.storage.interface import UnsupportedFormatError
from sharp_server.storage.postgres import connections, schema
from sharp_server.storage.postgres.connections import AsyncSession
from sharp_server.storage.postgres.storage import PostgresStorage
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import BeyondKey
from tests.postgres import database_of
from tests.server.storage.test_contract import arrival, episode_of, learner_and_stream, lesson, new_learner, version


def run(dsn: str, work: Callable[[PostgresStorage], Awaitable[None]]) -> None:
    async def main() -> None:
        storage = PostgresStorage(dsn)
        await storage.open()
        try:
            await asyncio.wait_for(work(storage), 120)
        finally:
            await storage.close()

    asyncio.run(main())


def partitions(dsn: str) -> int:
    with psycopg.connect(dsn) as session:
        row = session.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'examples\\_%'").fetchone()
    assert row is not None
    return int(row[0])


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_an_older_database_is_migrated_and_a_newer_one_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = database_of(tmp_path)

    async def write(storage: PostgresStorage) -> None:
        await storage.create_learner(new_learner("a"), 10)

    async def read(storage: PostgresStorage) -> None:
        assert [row.name for row in await storage.learners()] == ["a"]

    run(dsn, write)
    with monkeypatch.context() as patched:
        more = (*schema.MIGRATIONS, "ALTER TABLE learners ADD COLUMN more TEXT; CREATE TABLE another (id BIGINT)")
        patched.setattr(schema, "MIGRATIONS", more)
        run(dsn, read)
        run(dsn, read)  # once is enough
    with psycopg.connect(dsn) as session:
        assert session.execute("SELECT more FROM learners").fetchall() == [(None,)]
    with pytest.raises(UnsupportedFormatError, match="start the server that wrote it"):
        run(dsn, read)


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    dsn = database_of(tmp_path)
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("ALTER DATABASE " + str(session.info.dbname) + " SET synchronous_commit = off")

    async def main() -> None:
        session: AsyncSession = await connections.connect(dsn)
        assert await (await session.execute("SHOW synchronous_commit")).fetchone() == ("on",)
        await session.close()

    asyncio.run(main())


def test_no_session_holds_a_lock_for_long_when_its_machine_is_cut_off(tmp_path: Path) -> None:
    show = "SELECT current_setting('idle_in_transaction_session_timeout')"

    async def setting(transaction: Transaction) -> str:
        return str(await transaction.value(show))

    async def work(storage: PostgresStorage) -> None:
        assert await storage._journal.read(setting) == "10s"
        assert await storage._journal.write(setting) == "10s"

    dsn = database_of(tmp_path)
    run(dsn, work)
    with connections.session_here(dsn) as session:  # the trainer's
        assert session.execute(show).fetchone() == ("10s",)


def test_a_trainer_that_loses_its_session_while_it_reads_says_that_the_store_is_away(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable), connections.session_here(database_of(tmp_path)) as session:
        session.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def test_raw_examples_lie_in_one_table_per_stream_episode_and_lessons_and_go_with_it(tmp_path: Path) -> None:
    dsn = database_of(tmp_path)

    async def work(storage: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(storage)
        first = await episode_of(storage, learner, stream, 1, [0, 1])
        await episode_of(storage, learner, stream, 3, [0, 1])
        assert partitions(dsn) == 2
        await storage.append(arrival(learner, stream, 5, [0, 1]))
        await storage.keep_lesson(lesson(learner, "one", [0]))
        assert partitions(dsn) == 4
        await storage.learned(first.id, version(learner, 1), b"")
        assert partitions(dsn) == 3
        await storage.delete_learner(learner)
        assert partitions(dsn) == 0

    run(dsn, work)


def test_what_waits_together_is_committed_together_and_one_fault_takes_nothing_with_it(tmp_path: Path) -> None:
    async def work(storage: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(storage)
        before = storage._journal.commits
        futures = [storage.append(arrival(learner, stream, number, [0, 1])) for number in (1, 2, 4, 3)]
        done = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, RpcError) for result in done] == [False, False, True, False]
        assert storage._journal.commits - before <= 2
        row = await storage.open_stream(learner, "s", "EXPLICIT")
        assert (row.durable, row.open_examples) == (3, 6)

    run(database_of(tmp_path), work)


def test_readers_are_not_disturbed_by_examples_that_are_learned_moved_and_dropped_meanwhile(tmp_path: Path) -> None:
    async def work(storage: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(storage)
        done = asyncio.Event()

        async def read() -> int:
            reads = 0
            while not done.is_set():
                await storage.open_slices(stream)
                await storage.beyond(learner, (await storage.last_lesson(learner)) or BeyondKey(), 1 << 20)
                reads += 1
            return reads

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(1, 16):
            (closed,) = await storage.append(arrival(learner, stream, number, [0, 1, 2], cuts=((2, "cut"),)))
            await storage.keep_lesson(lesson(learner, str(number), [0]))
            await storage.learned(closed.id, version(learner, number), b"")
        done.set()
        assert min(await asyncio.gather(*readers)) > 0

    run(database_of(tmp_path), work)


# ---- a server that goes away -----------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[PostgresProcess]:
    """One that may be killed: the other tests of this worker have another."""
    with PostgresProcess() as server:
        yield server


def test_a_killed_database_refuses_work_until_it_is_back_and_keeps_just_what_was_acknowledged(
    server: PostgresProcess,
) -> None:
    dsn = server.database("killed")

    async def work(storage: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(storage)
        heard = storage.changes()
        assert (await anext(heard)).what == "lost"
        await storage.append(arrival(learner, stream, 1, [0, 1]))
        in_flight = [storage.append(arrival(learner, stream, number, [0, 1])) for number in range(2, 100)]
        await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailable):
            await storage.keep_lesson(lesson(learner, "one", [0]))
        with pytest.raises(JournalUnavailable):
            await storage.learners()
        await asyncio.to_thread(server.start)
        done = await asyncio.gather(*in_flight, return_exceptions=True)
        kept = sum(not isinstance(result, BaseException) for result in done)
        assert all(isinstance(result, (list, StoreUnavailable)) for result in done)
        row = await storage.open_stream(learner, "s", "EXPLICIT")
        assert (row.durable, row.open_examples) == (1 + kept, 2 * (1 + kept))
        assert sum(piece.count for piece in await storage.open_slices(stream)) == row.open_examples
        await storage.append(arrival(learner, stream, row.durable + 1, [0, 1]))
        assert not (await storage.keep_lesson(lesson(learner, "one", [0]))).repetition
        assert (await anext(heard)).what == "lost"
        await storage.keep_lesson(lesson(learner, "two", [0]))
        assert (await anext(heard)).what == "lesson"

    run(dsn, work)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_a_commit_whose_answer_was_lost_is_cleared_up_by_the_next_session(tmp_path: Path, kept: bool) -> None:
    """The connection dies in the very moment of the commit, before or after PostgreSQL did it."""
    dsn = database_of(tmp_path)

    async def work(storage: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(storage)
        session = storage._journal._session
        assert session is not None
        execute = session.execute

        async def dying(query: str, *values: Any) -> Any:
            if query != "COMMIT":
                return await execute(query, *values)
            if kept:
                await execute(query)
            await session.close()
            raise psycopg.OperationalError("the connection was lost")

        session.execute = dying  # type: ignore[assignment, method-assign]
        appended = storage.append(arrival(learner, stream, 1, [0, 1]))
        if kept:
            assert await appended == []
        else:
            with pytest.raises(StoreUnavailable):
                await appended
        row = await storage.open_stream(learner, "s", "EXPLICIT")
        assert row.durable == int(kept)

    run(dsn, work)


def test_a_database_that_is_not_there_is_a_clear_error_without_the_password(tmp_path: Path) -> None:
    dsn = f"postgresql://postgres:very-secret@/none?host={tmp_path}"

    async def main() -> None:
        storage = PostgresStorage(dsn)
        with pytest.raises(StoreUnavailable) as caught:
            await storage.open()
        assert "very-secret" not in str(caught.value) + repr(storage.example_source())
        await storage.close()

    asyncio.run(main())
    assert "very-secret" not in connections.describe(dsn)
