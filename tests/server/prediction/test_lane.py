"""What waits to be taught: batches that arrive one after the other come before those that are to be counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from sharp_server.prediction.lane import Lane, Teachable, Waiting

SILENCE, ARRIVING = 0.05, 0.4


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharp_server.prediction.lane._SECONDS_OF_SILENCE", SILENCE)
    monkeypatch.setattr("sharp_server.prediction.lane._SECONDS_TO_ARRIVE", ARRIVING)


def rested(
    meanwhile: Callable[[Lane], Awaitable[None]], prepare: Callable[[Lane], None] = Lane.batches_arrived
) -> float:
    """Seconds that a lane rests while something goes on."""

    async def run() -> float:
        lane = Lane(cast(Teachable, None))
        prepare(lane)
        begun = time.monotonic()
        beside = asyncio.ensure_future(meanwhile(lane))
        await lane.rest()
        took = time.monotonic() - begun
        beside.cancel()
        return took

    return asyncio.run(run())


async def nothing(_: Lane) -> None:
    await asyncio.sleep(10.0)


async def batches(lane: Lane) -> None:
    while True:
        lane.batches_arrived()
        lane.move()
        await asyncio.sleep(SILENCE / 10)


async def batches_and_a_lesson(lane: Lane) -> None:
    for _ in range(5):
        lane.batches_arrived()
        lane.move()
        await asyncio.sleep(SILENCE / 10)
    lane.queue.append(Waiting(1, 0, cast(Any, None), [1], asyncio.get_running_loop().create_future()))
    lane.move()
    await batches(lane)


def test_a_batch_alone_is_counted_after_a_moment() -> None:
    assert SILENCE / 2 < rested(nothing) < ARRIVING


def test_batches_that_go_on_arriving_hold_up_the_counting_for_a_while_only() -> None:
    assert ARRIVING / 2 < rested(batches) < 10 * ARRIVING


def test_a_lesson_ends_the_rest() -> None:
    assert rested(batches_and_a_lesson) < ARRIVING


def test_what_took_long_to_count_is_followed_by_as_long_a_rest_while_batches_arrive() -> None:
    def counted(lane: Lane) -> None:
        lane.batches_arrived()
        lane.batch_counted(10, 2 * ARRIVING)

    assert rested(batches, counted) > 1.5 * ARRIVING


def test_nothing_that_arrived_long_ago_is_waited_for() -> None:
    assert rested(nothing, lambda lane: None) < SILENCE
