"""`interface.Storage` over SQLite: each operation is one statement function, run by the journal's writer or a reader.

It decides nothing: what an operation means is in `streams`, `episodes` and `learners`, how it reaches the disk in
`journal`. A journal that SQLite can't use any more is set aside here, never repaired and never deleted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sharp_server.errors import redact
from sharp_server.storage.data_folder import QUARANTINE_PREFIX
from sharp_server.storage.interface import Opening
from sharp_server.storage.records import (
    Arrival,
    BatchSlice,
    Beyond,
    BeyondKey,
    CorruptionEvent,
    EpisodeRow,
    Forgotten,
    FoundLearner,
    LearnerRow,
    LessonRow,
    NewLearner,
    NewLesson,
    NewSnapshot,
    NewVersion,
    Published,
    QualityRow,
    Relabelling,
    SnapshotRow,
    StreamRow,
    VersionRow,
)
from sharp_server.storage.sqlite import classes, episodes, learners, lessons, schema, streams
from sharp_server.storage.sqlite.journal import Journal

log = logging.getLogger(__name__)

_UNLEARNED = "e.learner = ? AND e.state IN ('waiting', 'parked')"


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


class SqliteStorage:
    """The journal in one SQLite file."""

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
        new = await self._journal.read(learners.never_used)
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

    async def open_stream(self, learner: int, name: str, boundaries: str) -> StreamRow:
        """Take up a stream, or make it."""
        return await self._journal.write(streams.open_stream, learner, name, boundaries)

    async def room(self) -> None:
        """Wait until more may be appended."""
        await self._journal.room()

    def append(self, arrival: Arrival) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a batch."""
        return self._journal.submit(lambda connection: streams.append(connection, arrival), arrival.bytes)

    def close_episode(self, learner: int, stream: int, sequence: int) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a producer's mark."""
        return self._journal.submit(lambda connection: streams.mark(connection, learner, stream, sequence), 0)

    async def open_slices(self, stream: int) -> list[BatchSlice]:
        """A stream's open examples."""
        return await self._journal.read(streams.open_slices, stream)

    async def episodes_of_stream(self, stream: int, after_sequence: int, limit: int) -> list[EpisodeRow]:
        """The newest episodes that end after a sequence number, in order."""
        condition = "e.stream = ? AND e.last_sequence > ? ORDER BY e.number DESC LIMIT ?"
        after = min(after_sequence, schema.LARGEST)
        return (await self._journal.read(streams.episodes_where, condition, stream, after, limit))[::-1]

    async def empty_marks(self, stream: int, after_sequence: int, limit: int) -> list[int]:
        """The newest marks after a sequence number that closed nothing, in order."""
        return await self._journal.read(streams.empty_marks, stream, min(after_sequence, schema.LARGEST), limit)

    # ---- lessons ----------------------------------------------------------------------------------------------------

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson, or find it."""
        return self._journal.submit(lambda connection: lessons.keep(connection, lesson), lesson.bytes)

    async def drop_lesson(self, learner: int, place: int) -> None:
        """Take back a lesson."""
        await self._journal.write(lessons.drop, learner, place)

    async def last_lesson(self, learner: int) -> BeyondKey | None:
        """Where the last lesson stands."""
        return await self._journal.read(lessons.last, learner)

    async def beyond(self, learner: int, after: BeyondKey, nbytes: int) -> list[Beyond]:
        """What is not part of a version yet."""
        return await self._journal.read(lessons.beyond, learner, after, nbytes)

    # ---- episodes ---------------------------------------------------------------------------------------------------

    async def unlearned_episodes(self, learner: int) -> list[EpisodeRow]:
        """Episodes that wait or are parked."""
        return await self._journal.read(streams.episodes_where, _UNLEARNED, learner)

    async def unlearned_totals(self, learner: int) -> tuple[int, int]:
        """Bytes not learned yet, and open examples."""
        return await self._journal.read(streams.unlearned_totals, learner)

    async def begin(self, episode: int) -> int:
        """A try begins."""
        return await self._journal.write(episodes.begin, episode)

    async def advance(self, episode: int, phase_sha256: bytes | None = None) -> None:
        """A phase was finished."""
        await self._journal.write(episodes.advance, episode, phase_sha256)

    async def excuse(self, episode: int) -> None:
        """A try came to nothing."""
        await self._journal.write(episodes.excuse, episode)

    async def fail(self, episode: int, start_over: bool = False) -> int:
        """A try failed."""
        return await self._journal.write(episodes.fail, episode, start_over)

    async def park(self, episode: int, reason: str, detail: str) -> EpisodeRow:
        """Set an episode aside."""
        return await self._journal.write(episodes.park, episode, reason, detail)

    async def retry(self, learner: int, number: int) -> EpisodeRow:
        """Put a parked episode back."""
        return await self._journal.write(episodes.retry, learner, number)

    async def discard(self, learner: int, number: int) -> EpisodeRow:
        """Give up a parked episode."""
        return await self._journal.write(episodes.discard, learner, number)

    async def learned(self, episode: int, version: NewVersion, statistics: bytes) -> Published:
        """Record the version that holds an episode."""
        return await self._journal.write(episodes.learned, episode, version, statistics)

    # ---- learners ---------------------------------------------------------------------------------------------------

    async def learners(self) -> list[LearnerRow]:
        """All learners by name."""
        return await self._journal.read(learners.learners)

    async def create_learner(self, new: NewLearner, limit: int) -> LearnerRow:
        """Make a learner."""
        return await self._journal.write(learners.create, new, limit)

    async def delete_learner(self, learner: int) -> None:
        """Delete a learner."""
        await self._journal.write(learners.delete, learner)

    async def enter(self, found: Sequence[FoundLearner]) -> None:
        """Write learners that were found by their files."""
        await self._journal.write(learners.enter, found)

    async def fix_inputs(self, learner: int, input_shape: str, label_kind: str | None) -> None:
        """Fix a learner's input shape and kind of labels."""
        await self._journal.write(learners.fix_inputs, learner, input_shape, label_kind)

    async def classes(self, learner: int) -> list[tuple[int, str]]:
        """The classes that were met and not forgotten."""
        return await self._journal.read(learners.classes, learner)

    async def add_classes(self, learner: int, pairs: list[tuple[int, str]], next_class: int) -> None:
        """Write down classes that a snapshot brought."""
        await self._journal.write(learners.add_classes, learner, pairs, next_class)

    async def forgotten(self, learner: int) -> dict[str, int]:
        """The classes that were forgotten."""
        return await self._journal.read(learners.forgotten, learner)

    def forget(self, learner: int, label: str) -> asyncio.Future[Forgotten]:
        """Remove a class from everything not learned yet."""
        return self._journal.submit(lambda connection: episodes.forget(connection, learner, label), 0)

    def relabel(self, change: Relabelling) -> asyncio.Future[int]:
        """Give a class another name, or make it part of another."""
        return self._journal.submit(lambda connection: episodes.relabel(connection, change), 0)

    async def renamed(self, learner: int) -> list[tuple[str, str, int]]:
        """Classes that were renamed or merged."""
        return await self._journal.read(classes.renamed, learner)

    async def older_names(self, learner: int, label: str) -> dict[str, int]:
        """What a class was called before."""
        return await self._journal.read(classes.older_names, learner, label)

    # ---- versions and snapshots -------------------------------------------------------------------------------------

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

    async def version(self, learner: int, version: int) -> VersionRow | None:
        """One version."""
        return await self._journal.read(learners.version, learner, version)

    async def qualities(self, learner: int) -> list[QualityRow]:
        """How good the newest versions are."""
        return await self._journal.read(learners.qualities, learner)

    async def episodes_learned(self, learner: int) -> int:
        """Episodes that were learned in all."""
        return await self._journal.read(learners.episodes_learned, learner)

    async def add_snapshot(self, new: NewSnapshot, limit: int) -> SnapshotRow:
        """Record a snapshot that is kept on request."""
        return await self._journal.write(learners.add_snapshot, new, limit)

    async def snapshots(self, learner: int) -> list[SnapshotRow]:
        """A learner's snapshots, newest first."""
        return await self._journal.read(learners.snapshots, learner)

    async def snapshot(self, learner: int, name: str) -> SnapshotRow:
        """One snapshot."""
        return await self._journal.read(learners.snapshot, learner, name)

    async def delete_snapshots(self, learner: int, names: list[str]) -> None:
        """Delete the records of snapshots."""
        await self._journal.write(learners.delete_snapshots, learner, names)

    # ---- damage -----------------------------------------------------------------------------------------------------

    async def mark_damaged(self, snapshot: SnapshotRow) -> None:
        """Note that a snapshot's file is not what was written."""
        await self._journal.write(learners.mark_damaged, snapshot)

    async def add_corruption_event(self, event: CorruptionEvent) -> None:
        """Write down what was found damaged."""
        await self._journal.write(learners.add_corruption_event, event)

    async def corruption_events(self) -> list[CorruptionEvent]:
        """The newest hundred."""
        return await self._journal.read(learners.corruption_events)
