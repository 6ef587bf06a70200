"""A backlog agrees with itself whatever happens to episodes, and an episode that is done does not come back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sharp_server.errors import RpcError
from sharp_server.learners.backlog import Backlog
from sharp_server.learners.class_ordinals import ClassOrdinals
from sharp_server.storage.records import EpisodeRow


def episode(number: int, **values: object) -> EpisodeRow:
    row = EpisodeRow(
        id=number, learner=1, number=number, stream=1, stream_name="s", boundaries="EXPLICIT", state="waiting",
        position=number, closed_by="mark", first_sequence=1, last_sequence=2, last_batch_examples=0, examples=10,
        bytes=100, classes=(), closed=1.0, attempts=0, starts=0, reason="", detail="", finished_at=0.0, version=0,
        episodes_learned=0, statistics=b"",
    )  # fmt: skip
    return replace(row, **values)  # type: ignore[arg-type]


def test_examples_are_open_then_waiting_then_gone() -> None:
    async def work() -> None:
        backlog = Backlog()
        backlog.reserve(100)
        backlog.arrived(10)
        assert (backlog.bytes, backlog.open_examples, backlog.next()) == (100, 10, None)
        backlog.closed(episode(1))
        assert (backlog.open_examples, backlog.examples) == (0, 10) and backlog.waits_for(1)
        backlog.update(episode(1, state="learned"))
        backlog.release(100)
        assert (backlog.bytes, backlog.examples, backlog.episodes()) == (0, 0, [])
        backlog.update(episode(1, attempts=0))  # a counter that was written late
        assert backlog.episodes() == [] and not backlog.waits_for(1)

    asyncio.run(work())


def test_episodes_are_learned_by_position_and_parked_ones_are_passed_over() -> None:
    async def work() -> None:
        backlog = Backlog()
        backlog.load([episode(1, position=3), episode(2), episode(3, state="parked", position=1)], 300, 0)
        first = backlog.next()
        assert first is not None and first.number == 2
        assert [e.number for e in backlog.waiting()] == [2, 1] and [e.number for e in backlog.parked()] == [3]
        assert backlog.ahead_of(episode(1, position=3)) == 1
        assert (backlog.examples, backlog.all_examples) == (20, 30)
        backlog.drop(episode(3))
        assert backlog.parked() == [] and backlog.bytes == 200

    asyncio.run(work())


def test_what_is_read_back_after_a_change_of_classes_undoes_nothing_that_happened_meanwhile() -> None:
    async def work() -> None:
        backlog = Backlog()
        for number in (1, 2, 3):
            backlog.closed(episode(number))
        backlog.update(episode(2, state="parked"))
        read = [episode(1, examples=4, bytes=40), episode(2, state="waiting", position=9)]
        backlog.closed(episode(4))  # while it was being read
        backlog.forgot(read, [episode(3)], 160, 0)
        assert [e.number for e in backlog.waiting()] == [1, 4] and [e.number for e in backlog.parked()] == [2]
        assert [e.examples for e in backlog.waiting()] == [4, 10]
        backlog.update(episode(1, state="learned"))
        backlog.relabelled([episode(1), episode(4, classes=("b",))])
        assert [(e.number, e.classes) for e in backlog.waiting()] == [(4, ("b",))]

    asyncio.run(work())


def test_whoever_waits_for_room_is_woken_by_every_release() -> None:
    async def work() -> None:
        backlog = Backlog()
        waiting = asyncio.ensure_future(backlog.room_freed())
        await asyncio.sleep(0)
        assert not waiting.done()
        backlog.release(0)
        await asyncio.wait_for(waiting, 10)

    asyncio.run(work())


def test_a_class_keeps_its_number_until_it_is_forgotten_and_gets_another_one_then() -> None:
    classes = ClassOrdinals(0)
    assert classes.number(["a", "b", "a"], 9).tolist() == [0, 1, 0]
    assert classes.not_durable(["a", "b"]) == ((0, '"a"'), (1, '"b"'))
    classes.made_durable([0])
    assert classes.not_durable(["a", "b"]) == ((1, '"b"'),)
    ordinal = classes.forget("a")
    assert ordinal == 0 and "a" not in classes
    assert classes.number(["a"], 9).tolist() == [2]
    assert classes.adopt(["b", "c"]) == [(1, '"b"'), (3, '"c"')] and classes.next_ordinal == 4


def test_a_class_whose_forgetting_did_not_come_about_goes_by_its_number_again() -> None:
    classes = ClassOrdinals(0)
    classes.number(["a"], 9)
    ordinal = classes.forget("a")
    assert classes.number(["a"], 9).tolist() == [1]  # meanwhile
    classes.take_back("a", ordinal)
    assert classes.by_ordinal() == {0: "a"} and classes.number(["a"], 9).tolist() == [0]


def test_classes_beyond_the_limit_are_refused_together_and_none_of_them_is_known() -> None:
    classes = ClassOrdinals(0)
    with pytest.raises(RpcError, match="more than 2"):
        classes.number(["a", "b", "c"], 2)
    assert classes.by_ordinal() == {}
