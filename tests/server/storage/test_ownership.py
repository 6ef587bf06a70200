"""Servers that share a database: a learner has one owner, and a stale one writes nothing, whatever it tries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharp_server.errors import RpcError, StaleOwnerError
from sharp_server.storage.interface import StoreInUseError
from sharp_server.storage.postgres import locks
from sharp_server.storage.postgres.storage import PostgresStorage
from sharp_server.storage.records import BeyondKey, Change, NewSnapshot, OwnerRow, Relabelling
from tests.postgres import database_of
from tests.server.storage.test_contract import arrival, episode_of, learner_and_stream, lesson, new_learner, version

CLASS = '"class 0"'


def everything(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, but for who wrote last."""
    with psycopg.connect(dsn) as session:
        tables = session.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
        return {
            name: sorted(session.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
            for (name,) in tables
            if name != "writers"
        }


def together(dsn: str, work: Callable[[PostgresStorage, PostgresStorage], Awaitable[None]]) -> None:
    async def main() -> None:
        one, other = PostgresStorage(dsn, "one", "one:1"), PostgresStorage(dsn, "other")
        await one.open()
        await other.open()
        try:
            await asyncio.wait_for(work(one, other), 60)
        finally:
            await one.close()
            await other.close()

    asyncio.run(main())


WRITES: dict[str, Callable[[PostgresStorage, int, int, int, int], Awaitable[Any]]] = {
    "open_stream": lambda s, learner, *_: s.open_stream(learner, "new", "EXPLICIT"),
    "append": lambda s, learner, stream, *_: s.append(arrival(learner, stream, 6, [0, 1])),
    "append with a cut": lambda s, learner, stream, *_: s.append(arrival(learner, stream, 6, [5], cuts=((2, "cut"),))),
    "close_episode": lambda s, learner, stream, *_: s.close_episode(learner, stream, 6),
    "keep_lesson": lambda s, learner, *_: s.keep_lesson(lesson(learner, "new", [7])),
    "drop_lesson": lambda s, learner, *_: s.drop_lesson(learner, 6),
    "begin": lambda s, _l, _s, waiting, _p: s.begin(waiting),
    "advance": lambda s, _l, _s, waiting, _p: s.advance(waiting),
    "excuse": lambda s, _l, _s, waiting, _p: s.excuse(waiting),
    "fail": lambda s, _l, _s, waiting, _p: s.fail(waiting),
    "park": lambda s, _l, _s, waiting, _p: s.park(waiting, "ENGINE_ERROR", "why"),
    "retry": lambda s, learner, *_: s.retry(learner, 2),
    "discard": lambda s, learner, *_: s.discard(learner, 2),
    "learned": lambda s, learner, _s, waiting, _p: s.learned(waiting, version(learner, 2), b""),
    "delete_learner": lambda s, learner, *_: s.delete_learner(learner),
    "fix_inputs": lambda s, learner, *_: s.fix_inputs(learner, "[9]", "text"),
    "add_classes": lambda s, learner, *_: s.add_classes(learner, [(9, '"nine"')], 10),
    "forget": lambda s, learner, *_: s.forget(learner, CLASS),
    "relabel": lambda s, learner, *_: s.relabel(Relabelling(learner, CLASS, '"zero"', False)),
    "publish": lambda s, learner, *_: s.publish(version(learner, 2)),
    "publish with lessons": lambda s, learner, *_: s.publish(replace(version(learner, 2), lessons=9)),
    "publish and forget": lambda s, learner, *_: s.publish(version(learner, 2), forget=CLASS, remember=['"x"']),
    "add_snapshot": lambda s, learner, *_: s.add_snapshot(
        NewSnapshot(learner, "kept", 1, 1, "[]", "requested", 7, b"\2" * 32), 9
    ),
    "delete_snapshots": lambda s, learner, *_: s.delete_snapshots(learner, ["00000001a-x"]),
    "release": lambda s, learner, *_: s.release(learner, 1),
}


async def mark_damaged(storage: PostgresStorage, learner: int, *_: int) -> None:
    await storage.mark_damaged(await storage.snapshot(learner, "00000001a-x"))


WRITES["mark_damaged"] = mark_damaged


async def prepared(storage: PostgresStorage) -> tuple[int, int, int, int]:
    """A learner with something of every kind; gives its id, its stream, and a waiting and a parked episode."""
    learner, stream = await learner_and_stream(storage)
    waiting = await episode_of(storage, learner, stream, 1, [0, 1])
    parked = await episode_of(storage, learner, stream, 3, [0, 1])
    await storage.park(parked.id, "ENGINE_ERROR", "why")
    await storage.append(arrival(learner, stream, 5, [0, 2]))
    await storage.keep_lesson(lesson(learner, "one", [0, 3]))
    await storage.publish(version(learner, 1, cause="taught"))
    return learner, stream, waiting.id, parked.id


def test_a_stale_owner_writes_nothing_whatever_it_tries_and_still_reads(tmp_path: Path) -> None:
    dsn = database_of(tmp_path)

    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        learner, stream, waiting, parked = await prepared(one)
        assert await other.claim(learner, "other", "other:1") == 2
        before = everything(dsn)
        for name, write in WRITES.items():
            with pytest.raises(StaleOwnerError) as caught:
                await write(one, learner, stream, waiting, parked)
            assert (caught.value.reason, caught.value.metadata) == ("NOT_OWNER", {"owner": "other:1"}), name
        assert everything(dsn) == before
        assert (await one.learners())[0].version == 1
        assert [piece.count for piece in await one.open_slices(stream)] == [2]
        assert len(one.example_source().read(waiting)) == 1
        assert len(await one.beyond(learner, BeyondKey(), 1 << 20)) == 3
        await other.append(arrival(learner, stream, 6, [0]))

    together(dsn, work)


def test_the_owner_may_do_what_the_stale_one_may_not(tmp_path: Path) -> None:
    """Else the test above could pass for another reason."""

    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        for number, (name, write) in enumerate(WRITES.items()):
            if name in ("release", "drop_lesson"):
                continue
            row = await one.create_learner(new_learner(f"learner {number}"), 1000)
            stream = (await one.open_stream(row.id, "s", "EXPLICIT")).id
            waiting = await episode_of(one, row.id, stream, 1, [0, 1])
            parked = await episode_of(one, row.id, stream, 3, [0, 1])
            await one.park(parked.id, "ENGINE_ERROR", "why")
            await one.append(arrival(row.id, stream, 5, [0, 2]))
            await one.keep_lesson(lesson(row.id, "one", [0, 3]))
            await one.publish(version(row.id, 1, cause="taught"))
            await write(one, row.id, stream, waiting.id, parked.id)

    together(database_of(tmp_path), work)


def test_a_claim_waits_for_what_was_begun_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(one)
        appended = [one.append(arrival(learner, stream, number, [0])) for number in range(1, 200)]
        epoch = await other.claim(learner, "other", "other:1")
        assert epoch == 2
        durable = (await other.open_stream(learner, "s", "EXPLICIT")).durable
        done = await asyncio.gather(*appended, return_exceptions=True)
        kept = [result for result in done if not isinstance(result, BaseException)]
        assert len(kept) == durable
        assert all(isinstance(result, StaleOwnerError) for result in done[durable:])

    together(database_of(tmp_path), work)


def test_owners_are_told_and_what_is_released_is_nobodys(tmp_path: Path) -> None:
    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        learner, stream = await learner_and_stream(one)
        assert await other.owners() == [OwnerRow(learner, "a", "one", "one:1", 1)]
        assert await one.claim(learner, "one", "one:2") == 2  # again, with what waits behind it
        await one.append(arrival(learner, stream, 1, [0]))
        with pytest.raises(StaleOwnerError):
            await one.release(learner, 1)
        await one.release(learner, 2)
        assert await other.owners() == [OwnerRow(learner, "a", "", "", 2)]
        for storage in (one, other):
            with pytest.raises(StaleOwnerError):
                await storage.append(arrival(learner, stream, 2, [0]))
        assert await one.claim(learner, "other", "other:1") == 3  # on behalf of another
        with pytest.raises(StaleOwnerError):
            await one.append(arrival(learner, stream, 2, [0]))
        with pytest.raises(RpcError, match="deleted"):
            await one.claim(learner + 1, "one", "one:1")

    together(database_of(tmp_path), work)


def test_two_servers_that_make_a_learner_of_one_name_get_one(tmp_path: Path) -> None:
    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        made = await asyncio.gather(
            one.create_learner(new_learner("same"), 10),
            other.create_learner(replace(new_learner("same"), uid="another"), 10),
            return_exceptions=True,
        )
        refused = [error for error in made if isinstance(error, RpcError)]
        assert [error.reason for error in refused] == ["LEARNER_EXISTS"]
        assert len(await one.learners()) == 1

    together(database_of(tmp_path), work)


@pytest.mark.parametrize(("first", "second"), [("", ""), ("", "one"), ("one", ""), ("one", "one")])
def test_a_second_server_is_refused_unless_both_have_names_of_their_own(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.3)
    dsn = database_of(tmp_path)

    async def main() -> None:
        storage = PostgresStorage(dsn, first)
        await storage.open()
        try:
            with pytest.raises(StoreInUseError, match="another server uses the database"):
                await PostgresStorage(dsn, second).open()
            await storage.create_learner(new_learner("a"), 10)
        finally:
            await storage.close()
        again = PostgresStorage(dsn, second)
        await again.open()
        await again.close()

    asyncio.run(main())


def test_the_only_server_takes_over_whatever_had_an_owner(tmp_path: Path) -> None:
    dsn = database_of(tmp_path)

    async def main() -> None:
        owner = PostgresStorage(dsn, "one")
        await owner.open()
        learner, stream = await learner_and_stream(owner)
        await owner.close()
        alone = PostgresStorage(dsn)
        await alone.open()
        await alone.append(arrival(learner, stream, 1, [0]))
        assert await alone.owners() == [OwnerRow(learner, "a", "", "", 2)]
        await alone.close()

    asyncio.run(main())


def test_changes_of_one_server_are_told_to_another_as_they_are_committed(tmp_path: Path) -> None:
    async def work(one: PostgresStorage, other: PostgresStorage) -> None:
        heard = other.changes()
        assert (await anext(heard)).what == "lost"
        learner, stream = await learner_and_stream(one)
        uid = "uid of a"
        assert await anext(heard) == Change(uid, "owner", 1)
        episode = await episode_of(one, learner, stream, 1, [0, 1])
        place = (await one.keep_lesson(lesson(learner, "one", [0]))).place
        assert await anext(heard) == Change(uid, "lesson", place)
        with pytest.raises(RpcError):  # what is refused is not told
            await one.keep_lesson(lesson(learner, "one", [0], content=b"other"))
        await one.learned(episode.id, version(learner, 1), b"")
        assert await anext(heard) == Change(uid, "version", 1)
        assert [row.version for row in await other.learners()] == [1]
        await one.drop_lesson(learner, place)
        assert await anext(heard) == Change(uid, "lesson", place)
        await one.forget(learner, CLASS)
        assert await anext(heard) == Change(uid, "lesson", 0)
        await other.claim(learner, "other", "other:1")
        assert await anext(heard) == Change(uid, "owner", 2)
        await other.delete_learner(learner)
        assert await anext(heard) == Change(uid, "deleted", 0)

    together(database_of(tmp_path), work)
