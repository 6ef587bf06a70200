"""What changes while a follower reads the journal is not missed: it reads once more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from reliability.simulation.teacher import InProcessTeacher
from sharp_engine import preset
from sharp_engine.config import to_dict
from sharp_server.cluster.followed_learners import FollowedLearners
from sharp_server.config.model import ServerConfig
from sharp_server.learners.registry import Readers, Registry
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.board import Standing
from sharp_server.storage.records import LearnerRow
from sharp_server.teaching.protocol import Answer, Request, TeacherDiedError
from sharp_server.teaching.remote import Bases

ROW = LearnerRow(1, "n", "u", b"", json.dumps(to_dict(preset("sharp"))), None, None, 0.0, 0, None, 0, 2)


class _Journal:
    """Names of classes, one of which changes while they are read for the first time."""

    def __init__(self) -> None:
        self.reads = 0
        self.followed: FollowedLearners | None = None

    async def learners(self) -> list[LearnerRow]:
        return [ROW]

    async def unlearned_totals(self, _: int) -> tuple[int, int]:
        return 0, 0

    async def snapshots(self, _: int) -> list[Any]:
        return []

    async def unlearned_episodes(self, _: int) -> list[Any]:
        return []

    async def beyond(self, *_: object) -> list[Any]:
        return []

    async def classes(self, _: int) -> list[tuple[int, str]]:
        self.reads += 1
        if self.reads > 1:
            return [(0, '"new"')]
        assert self.followed is not None
        self.followed.changed("u")  # the notification of a rename, which this read came just too early for
        return [(0, '"old"')]


class _Board:
    arrived = 0

    async def standings(self, uids: Sequence[str]) -> dict[str, Standing]:
        return {uid: Standing(0, 0, 1, self.arrived) for uid in uids}

    async def lesson_keys(self, _: int) -> list[Any]:
        return []


def test_a_class_that_is_renamed_while_the_journal_is_read_has_its_new_name_at_the_next_look() -> None:
    journal, thread, readers = _Journal(), BackgroundThread(), Readers(Registry())
    batcher = SimpleNamespace(forget=lambda _: None)
    followed: FollowedLearners

    async def look() -> dict[int, Any]:
        await followed.follow(["u"])
        served = readers.followed("n")
        assert served is not None
        return dict(served.labels_by_ordinal())

    async def work() -> None:
        nonlocal followed
        bases = Bases(InProcessTeacher(ServerConfig()), cast("Any", None), thread)
        parts = SimpleNamespace(
            storage=journal, board=_Board(), files=None, readers=readers, batcher=batcher, thread=thread, bases=bases
        )
        followed = journal.followed = FollowedLearners(cast("Any", parts))
        first, second, reads = await look(), await look(), journal.reads
        assert (first[0], second[0]) == ("old", "new")
        await look()
        assert journal.reads == reads  # nothing changed since: nothing is read

    asyncio.run(work())
    thread.close()


class _Dying(InProcessTeacher):
    deaths, dies = 0, True

    async def ask(self, request: Request, life: int) -> Answer:
        if self.dies:
            self.deaths += 1
            self.kill()
            raise TeacherDiedError(at_work=True)
        return await super().ask(request, life)


def test_a_learner_that_kills_the_teacher_is_not_tried_for_ever_but_again_when_something_is_new() -> None:
    journal, thread, readers, board = _Journal(), BackgroundThread(), Readers(Registry()), _Board()
    journal.reads = 1

    async def work() -> None:
        teacher = _Dying(ServerConfig())
        bases = Bases(teacher, cast("Any", None), thread)
        batcher = SimpleNamespace(forget=lambda _: None)
        parts = SimpleNamespace(
            storage=journal, board=board, files=None, readers=readers, batcher=batcher, thread=thread, bases=bases
        )
        followed = FollowedLearners(cast("Any", parts))
        for _ in range(6):
            await followed.follow(["u"])
        assert teacher.deaths == 3 and readers.followed("n") is None
        board.arrived, teacher.dies = 1, False
        await followed.follow(["u"])
        assert readers.followed("n") is not None

    asyncio.run(work())
    thread.close()
