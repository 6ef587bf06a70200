"""The journal in virtual time: SQLite's own statements and the journal's own transactions, on a disk in memory.

Where the journal has a thread, this has delays: a group waits, is committed, and is heard of later. A crash in between
leaves it durable and unheard of. Beside what it stores, each transaction notes what it did (`world.Disk.note`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reliability.simulation.world import World
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import ExampleSource
from sharp_server.storage.records import (
    Arrival,
    BatchSlice,
    Beyond,
    EpisodeRow,
    Forgotten,
    LessonRow,
    NewLesson,
    NewVersion,
    Published,
    Relabelling,
)
from sharp_server.storage.sqlite import episodes, lessons, streams
from sharp_server.storage.sqlite.journal import Journal, _settle, _Work
from sharp_server.storage.sqlite.storage import SqliteStorage

T = TypeVar("T")


class SimulatedJournal(Journal):
    """The journal's writer, as events of the loop."""

    def __init__(self, world: World) -> None:
        super().__init__(Path("journal"))
        self._world = world
        self._connection = world.disk.connection
        self._writing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """It is open already."""
        self._loop = loop

    def submit(self, run: Callable[[sqlite3.Connection], T], weight: int) -> asyncio.Future[T]:
        """Queue it, and let the writer look."""
        future = super().submit(run, weight)
        self._look()
        return future

    async def close(self) -> None:
        """Finish what waits."""
        while self._writing:
            await asyncio.sleep(0.01)

    def _reader(self) -> sqlite3.Connection:
        return self._connection

    def _look(self) -> None:
        if not self._writing and not self._queue.empty():
            self._writing = True
            self._world.loop.call_later(self._world.loop.delay(), self._write)

    def _write(self) -> None:
        group: list[_Work] = []
        try:
            while len(group) < self._world.chance.choice((1, 2, 8)):
                work = self._queue.get_nowait()
                assert work is not None
                group.append(work)
        except queue.Empty:
            pass
        outcomes = self._carry_out(group)
        self._world.loop.call_later(self._world.loop.delay(), self._written, outcomes)

    def _written(self, outcomes: list[tuple[_Work, Any, BaseException | None]]) -> None:
        _settle(outcomes)
        self._writing = False
        self._look()


class SimulatedStorage(SqliteStorage):
    """`Storage` over it; notes what the order of events is judged by."""

    def __init__(self, world: World, folder: DataFolder) -> None:
        self._path = folder.journal
        self._journal = SimulatedJournal(world)
        self._world, self._disk, self._folder = world, world.disk, folder

    def _admit(self, learner: int) -> None:
        """Refuse a write to a learner that is another server's, in its transaction; there is no other one here."""

    def example_source(self) -> Any:
        """Raw examples, straight from the disk."""
        return _Examples(self._disk.connection)

    def append(self, arrival: Arrival) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a batch."""

        def run(connection: sqlite3.Connection) -> list[EpisodeRow]:
            self._admit(arrival.learner)
            closed = streams.append(connection, arrival)
            stream = self._stream(arrival.stream)
            self._disk.note("batch", self._learner(arrival.learner), stream=stream, sequence=arrival.sequence)
            return closed

        return self._journal.submit(run, arrival.bytes)

    def close_episode(self, learner: int, stream: int, sequence: int) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a producer's mark."""

        def run(connection: sqlite3.Connection) -> list[EpisodeRow]:
            self._admit(learner)
            closed = streams.mark(connection, learner, stream, sequence)
            ends = [(episode.number, episode.place) for episode in closed]
            name = self._stream(stream)
            self._disk.note("mark", self._learner(learner), stream=name, sequence=sequence, episodes=ends)
            return closed

        return self._journal.submit(run, 0)

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson, or find it."""

        def run(connection: sqlite3.Connection) -> LessonRow:
            self._admit(lesson.learner)
            row = lessons.keep(connection, lesson)
            if not row.repetition:
                self._disk.note("lesson", self._learner(lesson.learner), request_id=lesson.request_id, place=row.place)
            return row

        return self._journal.submit(run, lesson.bytes)

    async def learned(self, episode: int, version: NewVersion, statistics: bytes) -> Published:
        """Record a version that holds an episode."""

        def run(connection: sqlite3.Connection) -> Published:
            published = episodes.learned(connection, episode, version, statistics)
            self._note_version(version)
            return published

        return await self._journal.submit(run, 0)

    def publish(
        self,
        version: NewVersion,
        forget: str | None = None,
        remember: Sequence[str] = (),
        relabel: Relabelling | None = None,
    ) -> asyncio.Future[Published]:
        """Record a version."""

        def run(connection: sqlite3.Connection) -> Published:
            published = episodes.publish(connection, version, forget, remember, relabel)
            self._note_version(version, forget)
            return published

        return self._journal.submit(run, 0)

    def forget(self, learner: int, label: str) -> asyncio.Future[Forgotten]:
        """Remove a class from everything not learned yet."""

        def run(connection: sqlite3.Connection) -> Forgotten:
            gone = episodes.forget(connection, learner, label)
            self._disk.note("forget", self._learner(learner), label=label)
            return gone

        return self._journal.submit(run, 0)

    def _note_version(self, version: NewVersion, forget: str | None = None) -> None:
        name = version.snapshot.name
        select = "SELECT uid FROM learners WHERE id = ?"
        uid = self._disk.connection.execute(select, (version.snapshot.learner,)).fetchone()[0]
        with contextlib.suppress(FileExistsError):  # a transaction may run twice
            os.link(self._folder.snapshot(uid, name), self._world.evidence(name))
        self._disk.note(
            "version",
            self._learner(version.snapshot.learner),
            version=version.version,
            cause=version.cause,
            episode=version.episode,
            lessons=version.lessons,
            holds=version.holds,
            snapshot=version.snapshot.name,
            forget=forget,
        )

    def _learner(self, learner: int) -> str:
        row = self._disk.connection.execute("SELECT name FROM learners WHERE id = ?", (learner,)).fetchone()
        return str(row[0])

    def _stream(self, stream: int) -> str:
        row = self._disk.connection.execute("SELECT name FROM streams WHERE id = ?", (stream,)).fetchone()
        return str(row[0])


class _Examples(ExampleSource):
    """What the trainer reads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self, episode: int) -> list[BatchSlice]:
        """The examples of a closed episode."""
        return streams.episode_slices(self._connection, episode)

    def lessons(self, learner: int, before: int) -> list[Beyond]:
        """The lessons before a place."""
        return lessons.before(self._connection, learner, before)
