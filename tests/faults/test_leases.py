"""Two simulated servers that take a learner from each other; and the fence between them, against its contract."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reliability.simulation.leases import check_owners, run_lease_schedule
from reliability.simulation.shared_disk import SharedDisk, SharedSimulatedStorage
from reliability.simulation.world import Note, World
from sharp_server.errors import RpcError, StaleOwnerError
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.postgres.transaction import Fence
from sharp_server.storage.records import BeyondKey, OwnerRow, Relabelling
from tests.server.storage.test_contract import arrival, episode_of, learner_and_stream, lesson, version

pytestmark = [  # a crash drops what was about to be done
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine:pytest.PytestUnraisableExceptionWarning"),
]

BUGS = {
    9: "a producer whose learner moved while its stream was opened heard that it was deleted",
    93: "a lesson on its way to the disk when its learner moved was never answered",
}
"""Seeds that failed once, and why."""


def test_nobody_but_the_owner_commits_and_nothing_is_lost_or_doubled() -> None:
    events: Counter[str] = Counter()
    for seed in range(1000, 1010):
        result = run_lease_schedule(seed)
        assert result.problems == [], f"python -m reliability.simulation --only-leases {seed}"
        events += result.events
    assert events["taken over"] and events["handed over"] and events["owner crashes"]
    assert events["commit refused"] > 20 and events["version learned"]


@pytest.mark.parametrize("seed", BUGS, ids=lambda seed: f"seed {seed}")
def test_a_bug_that_was_found_does_not_come_back(seed: int) -> None:
    assert run_lease_schedule(seed).problems == [], BUGS[seed]


def test_a_seed_gives_the_same_order_of_events_every_time() -> None:
    assert run_lease_schedule(5).digest == run_lease_schedule(5).digest != run_lease_schedule(6).digest


def test_a_fence_that_lets_a_stale_owner_through_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fence, "admits", lambda *_: True)
    assert any("the owner was" in problem for seed in range(6) for problem in run_lease_schedule(seed).problems)


def test_a_commit_of_somebody_else_is_told() -> None:
    claim = Note(1, "claim", "a", {"owner": "one", "epoch": 1}, "one")
    assert check_owners([claim, Note(2, "batch", "a", {}, "one")]) == []
    assert check_owners([claim, Note(2, "batch", "a", {}, "other")]) == ["other wrote a batch, the owner was one"]


# ---- the contract of `storage.interface.Ownership`, as `tests.server.storage.test_ownership` has it of PostgreSQL ----


def together(
    tmp_path: Path, work: Callable[[SharedSimulatedStorage, SharedSimulatedStorage, SharedDisk], Awaitable[None]]
) -> None:
    disk = SharedDisk()
    world = World(0, tmp_path / "data", 0.01, disk)
    (tmp_path / "data").mkdir()
    one, other = (SharedSimulatedStorage(world, DataFolder(tmp_path / name), name) for name in ("one", "other"))

    async def main() -> None:
        await one.open()
        await other.open()
        await work(one, other, disk)

    try:
        world.loop.run_until_complete(main())
    finally:
        world.loop.bury()
        world.loop.close()


CLASS = '"class 0"'
WRITES: dict[str, Callable[[Any, int, int, int], Awaitable[Any]]] = {
    "open_stream": lambda s, learner, *_: s.open_stream(learner, "s", "EXPLICIT"),
    "append": lambda s, learner, stream, _: s.append(arrival(learner, stream, 6, [0, 1])),
    "close_episode": lambda s, learner, stream, _: s.close_episode(learner, stream, 6),
    "keep_lesson": lambda s, learner, *_: s.keep_lesson(lesson(learner, "new", [7])),
    "drop_lesson": lambda s, learner, *_: s.drop_lesson(learner, 99),
    "begin": lambda s, _l, _s, waiting: s.begin(waiting),
    "advance": lambda s, _l, _s, waiting: s.advance(waiting),
    "fail": lambda s, _l, _s, waiting: s.fail(waiting),
    "park": lambda s, _l, _s, waiting: s.park(waiting, "ENGINE_ERROR", "why"),
    "retry": lambda s, learner, *_: s.retry(learner, 2),
    "discard": lambda s, learner, *_: s.discard(learner, 2),
    "delete_learner": lambda s, learner, *_: s.delete_learner(learner),
    "fix_inputs": lambda s, learner, *_: s.fix_inputs(learner, "[9]", "text"),
    "add_classes": lambda s, learner, *_: s.add_classes(learner, [(9, '"nine"')], 10),
    "forget": lambda s, learner, *_: s.forget(learner, CLASS),
    "relabel": lambda s, learner, *_: s.relabel(Relabelling(learner, CLASS, '"zero"', False)),
    "release": lambda s, learner, *_: s.release(learner, 1),
}


def test_a_stale_owner_writes_nothing_whatever_it_tries_and_still_reads(tmp_path: Path) -> None:
    async def work(one: SharedSimulatedStorage, other: SharedSimulatedStorage, disk: SharedDisk) -> None:
        learner, stream = await learner_and_stream(one)
        waiting = await episode_of(one, learner, stream, 1, [0, 1])
        parked = await episode_of(one, learner, stream, 3, [0, 1])
        await one.park(parked.id, "ENGINE_ERROR", "why")
        await one.append(arrival(learner, stream, 5, [0, 2]))
        await one.keep_lesson(lesson(learner, "one", [0, 3]))
        assert await other.claim(learner, "other", "other:1") == 2
        before = list(disk.connection.iterdump())
        for name, write in WRITES.items():
            with pytest.raises(StaleOwnerError) as caught:
                await write(one, learner, stream, waiting.id)
            assert (caught.value.reason, caught.value.metadata) == ("NOT_OWNER", {"owner": "other:1"}), name
        assert list(disk.connection.iterdump()) == before and disk.refusals >= len(WRITES)
        assert [piece.count for piece in await one.open_slices(stream)] == [2]
        assert len(await one.beyond(learner, BeyondKey(), 1 << 20)) == 3
        await other.append(arrival(learner, stream, 6, [0]))

    together(tmp_path, work)


def test_a_claim_waits_for_what_was_begun_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async def work(one: SharedSimulatedStorage, other: SharedSimulatedStorage, disk: SharedDisk) -> None:
        learner, stream = await learner_and_stream(one)
        appended = [one.append(arrival(learner, stream, number, [0])) for number in range(1, 60)]
        assert await other.claim(learner, "other", "other:1") == 2
        durable = (await other.open_stream(learner, "s", "EXPLICIT")).durable
        done = await asyncio.gather(*appended, return_exceptions=True)
        assert len([result for result in done if not isinstance(result, BaseException)]) == durable
        assert all(isinstance(result, StaleOwnerError) for result in done[durable:])

    together(tmp_path, work)


def test_what_is_released_is_nobodys(tmp_path: Path) -> None:
    async def work(one: SharedSimulatedStorage, other: SharedSimulatedStorage, disk: SharedDisk) -> None:
        learner, stream = await learner_and_stream(one)
        assert await other.owners() == [OwnerRow(learner, "a", "one", "one", 1)]
        assert await one.claim(learner, "one", "one:2") == 2
        await one.append(arrival(learner, stream, 1, [0]))
        with pytest.raises(StaleOwnerError):
            await one.release(learner, 1)
        await one.release(learner, 2)
        assert await other.owners() == [OwnerRow(learner, "a", "", "", 2)]
        for storage in (one, other):
            with pytest.raises(StaleOwnerError):
                await storage.append(arrival(learner, stream, 2, [0]))
        assert await other.claim(learner, "other", "other:1") == 3
        with pytest.raises(StaleOwnerError):
            await one.publish(replace(version(learner, 1), lessons=0))
        with pytest.raises(RpcError, match="deleted"):
            await one.claim(learner + 1, "one", "one:1")

    together(tmp_path, work)
