"""`interface.Storage` over SQLite: each operation is one statement function, run by the journal's writer or a reader.

It decides nothing: what an operation means is in `streams`, `episodes` and `learners`, how it reaches the disk in
`journal`. A journal that SQLite can't use any more is set aside here, never repaired and never deleted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sharp_server.errors import redact
from sharp_server.storage.data_folder import QUARANTINE_PREFIX
from sharp_server.storage.interface import Opening
from sharp_server.storage.records import (
    Arrival,
    BatchSlice,
    Beyond,
    EpisodeRow,
    LessonRow,
    NewLesson,
    NewVersion,
    Published,
    Relabelling,
)
from sharp_server.storage.sqlite import classes as class_statements
from sharp_server.storage.sqlite import episode_rows, episodes, lessons, schema, streams
from sharp_server.storage.sqlite import learners as learner_statements
from sharp_server.storage.sqlite.journal import Journal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SqliteExamples:
    """Reads raw examples from the journal's file, beside the process that writes it."""

    path: Path

    def read(self, episode: int) -> list[BatchSlice]:
        """The examples of a closed episode."""
        connection = schema.connect(self.path, readonly=True)
        try:
            return streams.episode_slices(connection, episode)
        finally:
            connection.close()

    def lessons(self, learner: int, before: int) -> list[Beyond]:
        """The lessons before a place."""
        connection = schema.connect(self.path, readonly=True)
        try:
            return lessons.before(connection, learner, before)
        finally:
            connection.close()


P = ParamSpec("P")
T = TypeVar("T")

_Operation = Callable[Concatenate["SqliteStorage", P], Coroutine[Any, Any, T]]


def _read(statement: Callable[Concatenate[sqlite3.Connection, P], T]) -> _Operation[P, T]:
    """An operation that is one statement function, run beside the writer."""

    async def operation(storage: SqliteStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await storage._journal.read(statement, *args, **kwargs)

    return operation


def _written(statement: Callable[Concatenate[sqlite3.Connection, P], T]) -> _Operation[P, T]:
    """An operation that is one statement function, run by the writer and on the disk when it returns."""

    async def operation(storage: SqliteStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await storage._journal.write(statement, *args, **kwargs)

    return operation


def _queued(
    statement: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteStorage, P], asyncio.Future[T]]:
    """The same, queued at the very moment of the call: whoever waits for the future waits for the disk."""

    def operation(storage: SqliteStorage, /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return storage._journal.submit(lambda connection: statement(connection, *args, **kwargs), 0)

    return operation


class SqliteStorage:
    """The journal in one SQLite file.

    `interface.Storage` says what each operation means: here stands only which statement function it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = Journal(path)

    async def open(self) -> Opening:
        """Open or make the file; one that is damaged beyond use is set aside."""
        loop, why, set_aside = asyncio.get_running_loop(), "the journal was missing", False
        try:
            await asyncio.to_thread(self._journal.start, loop)
        except sqlite3.Error as error:
            if not schema.is_damage(error):
                raise
            kept = await asyncio.to_thread(self._set_aside)
            why, set_aside = f"the journal was damaged ({redact(error)}) and is kept as {kept.name}", True
            await asyncio.to_thread(self._journal.start, loop)
        new = await self._journal.read(learner_statements.never_used)
        frames = self._journal.dropped_frames
        losses = (f"{frames} pages of the journal's log were damaged and dropped",) if frames else ()
        return Opening(why if new else "", set_aside, losses)

    def _set_aside(self) -> Path:
        """Rename the file and what lies beside it; returns the new path."""
        beginning = f"{QUARANTINE_PREFIX}{int(time.time())}-"
        for suffix in ("-shm", "-wal", ""):
            path = self._path.with_name(self._path.name + suffix)
            if path.exists():
                path.rename(path.with_name(beginning + path.name))
        return self._path.with_name(beginning + self._path.name)

    async def close(self) -> None:
        """Finish what waits and close the file."""
        await self._journal.close()

    def example_source(self) -> SqliteExamples:
        """How the trainer's process gets at raw examples."""
        return SqliteExamples(self._path)

    async def erase(self) -> bool:
        """Make sure that nothing deleted is left on disk."""
        return await self._journal.erase()

    # ---- streams ----------------------------------------------------------------------------------------------------

    open_stream = _written(streams.open_stream)
    close_episode = _queued(streams.mark)
    open_slices = _read(streams.open_slices)
    episodes_of_stream = _read(episode_rows.episodes_of_stream)
    empty_marks = _read(streams.empty_marks)

    async def room(self) -> None:
        """Wait until more may be appended."""
        await self._journal.room()

    def append(self, arrival: Arrival) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a batch."""
        return self._journal.submit(lambda connection: streams.append(connection, arrival), arrival.bytes)

    # ---- lessons ----------------------------------------------------------------------------------------------------

    drop_lesson = _written(lessons.drop)
    last_lesson = _read(lessons.last)
    beyond = _read(lessons.beyond)

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson, or find it."""
        return self._journal.submit(lambda connection: lessons.keep(connection, lesson), lesson.bytes)

    # ---- episodes ---------------------------------------------------------------------------------------------------

    unlearned_episodes = _read(episode_rows.unlearned_episodes)
    unlearned_totals = _read(streams.unlearned_totals)
    begin = _written(episodes.begin)
    advance = _written(episodes.advance)
    excuse = _written(episodes.excuse)
    fail = _written(episodes.fail)
    park = _written(episodes.park)
    retry = _written(episodes.retry)
    discard = _written(episodes.discard)
    learned = _written(episodes.learned)

    # ---- learners ---------------------------------------------------------------------------------------------------

    learners = _read(learner_statements.learners)
    delete_learner = _written(learner_statements.delete)
    fix_inputs = _written(learner_statements.fix_inputs)
    add_classes = _written(learner_statements.add_classes)
    classes = _read(learner_statements.classes)
    forgotten = _read(learner_statements.forgotten)
    forget = _queued(episodes.forget)
    relabel = _queued(episodes.relabel)
    renamed = _read(class_statements.renamed)
    older_names = _read(class_statements.older_names)
    create_learner = _written(learner_statements.create)
    enter = _written(learner_statements.enter)

    # ---- versions, snapshots, damage --------------------------------------------------------------------------------

    version = _read(learner_statements.version)
    qualities = _read(learner_statements.qualities)
    episodes_learned = _read(learner_statements.episodes_learned)
    add_snapshot = _written(learner_statements.add_snapshot)
    snapshots = _read(learner_statements.snapshots)
    snapshot = _read(learner_statements.snapshot)
    delete_snapshots = _written(learner_statements.delete_snapshots)
    mark_damaged = _written(learner_statements.mark_damaged)
    add_corruption_event = _written(learner_statements.add_corruption_event)
    corruption_events = _read(learner_statements.corruption_events)

    def publish(
        self,
        version: NewVersion,
        forget: str | None = None,
        remember: Sequence[str] = (),
        relabel: Relabelling | None = None,
    ) -> asyncio.Future[Published]:
        """Record a version with its snapshot."""
        return self._journal.submit(
            lambda connection: episodes.publish(connection, version, forget, remember, relabel), 0
        )
