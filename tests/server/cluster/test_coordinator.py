"""The coordinator on a real database: who is gone, who should own what, a few moves at a time, one at work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from sharp_server.cluster.coordinator import Coordinator
from sharp_server.storage.board import Board, Server
from sharp_server.storage.postgres.board import PostgresBoard
from tests.postgres import database_of

Work = Callable[[Board], Awaitable[None]]


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    """A database of the test's own."""
    return database_of(tmp_path)


def on_board(dsn: str, work: Work) -> None:
    async def run() -> None:
        board = PostgresBoard(dsn)
        await board.open()
        try:
            await work(board)
        finally:
            await board.close()

    asyncio.run(run())


def server(node: str) -> Server:
    return Server(node, f"{node}/1", f"{node}:1", "")


def add_learners(dsn: str, count: int, owner: str = "") -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        for number in range(count):
            session.execute(
                "INSERT INTO learners (name, uid, config, settings, created, owner) VALUES (%s, %s, '', '', 0, %s)",
                (f"l{number}", f"u{number}", owner),
            )


async def alive(_: Server) -> bool:
    return True


def test_learners_without_an_owner_are_spread_over_those_who_answer(dsn: str) -> None:
    async def work(board: Board) -> None:
        for node in ("a", "b"):
            await board.enter(server(node))
        add_learners(dsn, 5)
        await Coordinator(board, alive, lambda _: 1).step()
        wanted = await board.placements()
        assert sorted(sum(p.owner == node for p in wanted) for node in ("a", "b")) == [2, 3]
        assert all(p.followers == tuple({"a", "b"} - {p.owner}) for p in wanted)

    on_board(dsn, work)


def test_a_server_is_gone_after_three_probes_in_a_row_that_it_did_not_answer(dsn: str) -> None:
    async def work(board: Board) -> None:
        for node in ("a", "b"):
            await board.enter(server(node))
        add_learners(dsn, 2, "a/1")
        answers = iter([True, False, False, True, False, False, False])

        async def probe(asked: Server) -> bool:
            return asked.node == "b" or next(answers)

        coordinator = Coordinator(board, probe, lambda _: 0)
        for _ in range(6):
            await coordinator.step()
            assert len(await board.servers()) == 2
        await coordinator.step()
        assert [found.node for found in await board.servers()] == ["b"]
        assert {p.owner for p in await board.placements()} == {"b"}

    on_board(dsn, work)


def test_few_learners_leave_a_living_server_at_a_time(dsn: str) -> None:
    async def work(board: Board) -> None:
        for node in ("a", "b"):
            await board.enter(server(node))
        add_learners(dsn, 20, "a/1")
        placed = await Coordinator(board, alive, lambda _: 0).step()
        assert sum(p.owner == "b" for p in placed.values()) == 4

    on_board(dsn, work)


def test_a_learner_that_is_no_more_is_wanted_no_more(dsn: str) -> None:
    async def work(board: Board) -> None:
        await board.enter(server("a"))
        add_learners(dsn, 2)
        coordinator = Coordinator(board, alive, lambda _: 0)
        await coordinator.step()
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("DELETE FROM learners WHERE uid = 'u0'")
        await coordinator.step()
        assert [p.uid for p in await board.placements()] == ["u1"]

    on_board(dsn, work)


def test_one_coordinator_works_at_a_time_and_another_when_it_is_not_heard_of_any_more(dsn: str) -> None:
    async def work(board: Board) -> None:
        assert await board.lead("first", 60.0)
        assert not await board.lead("second", 60.0)
        assert await board.lead("first", -1.0)
        assert await board.lead("second", 60.0)
        assert not await board.lead("first", 60.0)

    on_board(dsn, work)
