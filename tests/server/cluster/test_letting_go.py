"""A learner that is given up while the database goes away is nobody's for a moment, not for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharp_server.cluster.owned_learners import OwnedLearners
from sharp_server.errors import StoreUnavailable


class _Storage:
    def __init__(self) -> None:
        self.away = True

    async def release(self, learner: int, epoch: int) -> None:
        if self.away:
            raise StoreUnavailable("gone")


class _Scheduler:
    async def leave(self, served: object, seconds: float) -> None:
        pass

    @contextlib.asynccontextmanager
    async def paused(self, served: object) -> AsyncIterator[None]:
        yield


def test_a_learner_that_was_let_go_of_and_not_released_is_taken_up_again() -> None:
    def nothing(*_: object) -> None:
        pass

    storage = _Storage()
    parts = SimpleNamespace(
        storage=storage,
        scheduler=_Scheduler(),
        registry=SimpleNamespace(remove=nothing),
        readers=SimpleNamespace(add=nothing),
        teaching=SimpleNamespace(forget=nothing),
        batcher=SimpleNamespace(forget=nothing),
    )
    served: Any = SimpleNamespace(id=1, uid="u", name="n", change=contextlib.nullcontext, leave=nothing)
    owned = OwnedLearners(cast("Any", parts))
    with pytest.raises(StoreUnavailable):
        asyncio.run(owned.give_up(served, 3))
    assert owned.is_untaken("u")
    storage.away = False
    asyncio.run(owned.give_up(served, 3))
    assert not owned.is_untaken("u")
