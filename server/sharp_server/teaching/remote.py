"""A learner that is taught elsewhere: the front's handle of it, and how it comes to be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sharp_engine import Label, LearnerConfig
from sharp_server.prediction.model import DamagedSnapshotError
from sharp_server.prediction.summary import Summary
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.records import Beyond
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.process import Teacher
from sharp_server.teaching.protocol import (
    BaseVersion,
    Begin,
    Begun,
    Forget,
    GetKnown,
    Judged,
    Known,
    Lessons,
    Save,
    Saved,
    Taken,
    Teach,
    TeachAgain,
)


class RemoteLearner:
    """One learner in one life of the teacher. Everything that is asked may end with `TeacherDiedError`: then it is
    gone, with everything that it was taught.
    """

    def __init__(self, teacher: Teacher) -> None:
        self._teacher, self._life, self._number = teacher, teacher.life, teacher.new_number()

    async def begin(
        self, base: BaseVersion | None, config: LearnerConfig, classes: Sequence[Label] | None
    ) -> Summary | None:
        """See `Begin`; before anything else."""
        begin = Begin(self._number, base, config, None if classes is None else tuple(classes))
        try:
            answer = await self._teacher.ask(begin, self._life)
        except BaseException:
            self.drop()
            raise
        assert isinstance(answer, Begun)
        return answer.summary

    async def teach(self, lessons: Sequence[Taken]) -> Lessons:
        """Take lessons, all that can be taken; says what became of each, and what is known then."""
        answer = await self._teacher.ask(Teach(self._number, tuple(lessons)), self._life)
        assert isinstance(answer, Lessons)
        return answer

    async def teach_again(
        self,
        items: Sequence[Beyond],
        input_shape: tuple[int, ...],
        labels: Mapping[int, Label],
        judged: Collection[int] = (),
    ) -> dict[int, int]:
        """Take arrivals from the journal; gives how many examples of those in `judged` were answered wrong before."""
        request = TeachAgain(self._number, tuple(items), input_shape, dict(labels), frozenset(judged))
        answer = await self._teacher.ask(request, self._life)
        assert isinstance(answer, Judged)
        return answer.wrong

    async def known(self) -> Known:
        """What answers know now."""
        answer = await self._teacher.ask(GetKnown(self._number), self._life)
        assert isinstance(answer, Known)
        return answer

    async def save(self, path: Path, first: int) -> Saved | None:
        """Write what can become a version by itself, if there is any of it."""
        answer = await self._teacher.ask(Save(self._number, path, first), self._life)
        return answer if isinstance(answer, Saved) else None

    def drop(self) -> None:
        """It is not needed any more."""
        self._teacher.tell(Forget(self._number), self._life)


class Bases:
    """What is taught begins with one of these: the file of a version, or a new learner."""

    def __init__(self, teacher: Teacher, files: VersionFiles, thread: BackgroundThread) -> None:
        """`thread`: where files are fetched from an object store."""
        self._teacher, self._files, self._thread = teacher, files, thread

    async def new(self, config: LearnerConfig) -> RemoteLearner:
        """A learner that knows nothing."""
        learner = RemoteLearner(self._teacher)
        await learner.begin(None, config, ())
        return learner

    async def version(
        self, uid: str, name: str, sha256: bytes, config: LearnerConfig, classes: Sequence[Label] | None
    ) -> tuple[RemoteLearner, Summary | None]:
        """The learner in the file of a version, or DamagedSnapshotError if a sound one can't be had from anywhere.

        Where its `classes` are not known, a summary says so.
        """
        base = BaseVersion(self._files.path(uid, name), sha256)
        learner = RemoteLearner(self._teacher)
        try:
            summary = await learner.begin(base, config, classes)
        except DamagedSnapshotError:
            if not await self._thread.run_in_thread(self._files.heal, uid, name, sha256):
                raise
            learner = RemoteLearner(self._teacher)
            summary = await learner.begin(base, config, classes)
        if self._files.remote:
            await self._thread.run_in_thread(self._files.used, uid, name)
        return learner, summary
