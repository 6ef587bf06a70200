"""A lesson of which the teacher dies again and again is refused, one that was known is left out, all others count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from reliability.simulation.teacher import InProcessTeacher
from sharp.v1 import label_pb2, learner_admin_pb2, learning_pb2
from sharp_server.config.model import DataConfig, ServerConfig, TeachingConfig, TrainerConfig
from sharp_server.context import Makers, ServerContext
from sharp_server.storage.data_folder import DataFolder
from sharp_server.teaching.protocol import Answer, Begin, Request, Save, Teach, TeachAgain, TeacherDiedError
from sharp_server.teaching.suspects import Suspects
from tests.server.running import SMALL, blobs, labels, tensor

CLASSES = ["ash", "birch", "cedar"]
X, Y = blobs(CLASSES, each=4)


class Mortal(InProcessTeacher):
    """Dies of some things."""

    poison: float | None = None
    """An example with this value."""
    dies_of: tuple[type, ...] = ()
    deaths = 0

    async def ask(self, request: Request, life: int) -> Answer:
        if life == self._lives and (isinstance(request, self.dies_of) or self._is_poison(request)):
            type(self).deaths += 1
            self.kill()
            raise TeacherDiedError(at_work=True)
        return await super().ask(request, life)

    def _is_poison(self, request: Request) -> bool:
        if self.poison is None:
            return False
        if isinstance(request, Teach):
            return any((taken.x == self.poison).any() for taken in request.lessons)
        if isinstance(request, TeachAgain):
            values = (np.frombuffer(piece.x, "<f4") for item in request.items for piece in item.slices)
            return any((x == np.float32(self.poison)).any() for x in values)
        return False


@pytest.fixture(autouse=True)
def immortal() -> Iterator[None]:
    yield
    Mortal.poison, Mortal.dies_of, Mortal.deaths = None, (), 0


class Front:
    """A server in this process, without ports and without a trainer."""

    def __init__(self, folder: Path) -> None:
        config = ServerConfig(
            data=DataConfig(folder=str(folder)),
            trainer=TrainerConfig(retry_seconds=1e6),
            teaching=TeachingConfig(version_seconds=3600),
        )
        self._folder = DataFolder(folder)
        self._folder.acquire()
        self.context = ServerContext(config, self._folder, make=Makers(teacher=Mortal))

    async def __aenter__(self) -> Front:
        await self.context.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.context.close()
        self._folder.release()

    async def create(self) -> None:
        request = learner_admin_pb2.CreateLearnerRequest(name="trees")
        request.config.overrides.update(SMALL)
        await self.context.admin.CreateLearner(request, None)

    async def lesson(self, x: Any, y: list[Any], request_id: str) -> learning_pb2.TeachResponse:
        request = learning_pb2.TeachRequest(learner="trees", request_id=request_id, inputs=tensor(x), labels=labels(y))
        answer: learning_pb2.TeachResponse = await self.context.learning.Teach(request, None)
        return answer

    @property
    def served(self) -> Any:
        return self.context.registry.get("trees")

    def classes(self) -> set[Any]:
        return set(self.served.model.predictor.classes)


def test_a_lesson_that_kills_the_teacher_is_refused_and_gone_and_the_others_are_known(tmp_path: Path) -> None:
    async def work() -> None:
        Mortal.poison = 7.0
        async with Front(tmp_path) as front:
            await front.create()
            await front.lesson(X, Y, "first")
            lessons = [front.lesson(X[i : i + 1], ["elm"], f"good-{i}") for i in range(3)]
            bad = front.lesson(np.full_like(X[:1], 7.0), ["poison"], "bad")
            more = [front.lesson(X[i : i + 1], ["fir"], f"more-{i}") for i in range(3)]
            found = await asyncio.gather(*lessons, bad, *more, return_exceptions=True)
            assert isinstance(found[3], RuntimeError)
            assert all(isinstance(answer, learning_pb2.TeachResponse) for answer in found[:3] + found[4:])
            assert 3 <= Mortal.deaths <= 5
            deaths = Mortal.deaths
            assert front.classes() == {*CLASSES, "elm", "fir"}
            assert front.served.model.examples_beyond_version == len(X) + 6
            await front.lesson(X[:1], ["hazel"], "later")
            assert Mortal.deaths == deaths
        async with Front(tmp_path) as front:
            assert front.classes() == {*CLASSES, "elm", "fir", "hazel"}
            assert Mortal.deaths == deaths  # it left the journal

    asyncio.run(work())


def test_a_durable_lesson_that_comes_to_kill_the_teacher_is_left_out_and_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with Front(tmp_path) as front:
            await front.create()
            await front.lesson(X, Y, "first")
            await front.lesson(np.full_like(X[:1], 7.0), ["elm"], "durable")
            Mortal.poison = 7.0
            front.context.teacher.kill()
            await front.lesson(X[:1], ["fir"], "later")
            assert front.classes() == {*CLASSES, "fir"}
            assert not await front.context._consolidation.consolidate(front.served)  # which would take it away
        Mortal.poison = None
        async with Front(tmp_path) as front:
            assert front.classes() == {*CLASSES, "fir", "elm"}

    asyncio.run(work())


def test_a_version_that_the_teacher_dies_of_serves_all_the_same_without_what_is_beyond_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with Front(tmp_path) as front:
            await front.create()
            await front.lesson(X, Y, "first")
            assert await front.context._consolidation.consolidate(front.served)
            await front.lesson(X[:1], ["fir"], "beyond")
            Mortal.dies_of = (Begin,)
            forget = learner_admin_pb2.ForgetClassRequest(learner="trees", label=label_pb2.Label(text="ash"))
            await front.context.admin.ForgetClass(forget, None)
            assert front.served.model.version == 2
            assert front.classes() == {"birch", "cedar"}
            Mortal.dies_of = ()
            with patch.object(Suspects, "pause", lambda self: 0.0):
                await front.lesson(X[:1], ["elm"], "later")
            assert front.classes() == {"birch", "cedar", "fir", "elm"}

    asyncio.run(work())


def test_a_teacher_that_dies_while_it_writes_leaves_lessons_where_they_are(tmp_path: Path) -> None:
    async def work() -> None:
        async with Front(tmp_path) as front:
            await front.create()
            await front.lesson(X, Y, "first")
            Mortal.dies_of = (Save,)
            with pytest.raises(TeacherDiedError):
                await front.context._consolidation.consolidate(front.served)
            assert front.served.model.version == 0
            Mortal.dies_of = ()
            await front.lesson(X[:1], ["fir"], "later")
            assert await front.context._consolidation.consolidate(front.served)
            assert front.served.model.version == 1
            assert front.classes() == {*CLASSES, "fir"}

    asyncio.run(work())


def test_whoever_is_taught_in_between_is_no_suspect() -> None:
    suspects = Suspects()
    assert suspects.accuse([3, 4]) is None and suspects.careful
    assert suspects.accuse([3]) is None and suspects.accuse([3]) is None
    suspects.acquit([3])
    assert suspects.accuse([3]) is None and suspects.accuse([3]) is None and suspects.accuse([3]) == 3
    suspects.acquit_all()
    assert suspects.left_out == {3} and not suspects.careful and not suspects.hopeless
    for _ in range(3):
        assert suspects.accuse([]) is None
    assert suspects.hopeless and suspects.pause() < suspects.pause() and not suspects.hopeless
