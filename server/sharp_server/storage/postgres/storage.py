"""`interface.SharedStorage` over PostgreSQL: each operation is one statement function, run by the writer or a reader.

It decides nothing: what an operation means is in `streams`, `episodes`, `lessons`, `learners` and `versions`, how it
reaches PostgreSQL's disk in `journal`, and who may write in `transaction` and `locks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from sharp_server.storage.interface import Opening
from sharp_server.storage.postgres import changes, classes, episodes, learners, lessons, schema, streams, versions
from sharp_server.storage.postgres.example_source import PostgresExamples
from sharp_server.storage.postgres.journal import Journal
from sharp_server.storage.records import (
    Arrival,
    BatchSlice,
    Beyond,
    BeyondKey,
    Change,
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
    OwnerRow,
    Published,
    QualityRow,
    Relabelling,
    SnapshotRow,
    StreamRow,
    VersionRow,
)

_UNLEARNED = "e.learner = %s AND e.state IN ('waiting', 'parked')"


class PostgresStorage:
    """The journal in one PostgreSQL database."""

    def __init__(self, dsn: str, owner: str = "", address: str = "") -> None:
        """`owner`: the name of this server among those that share the database; empty: it is the only one.

        `address` is where what it creates is reached.
        """
        self._dsn, self._address = dsn, address
        self._journal = Journal(dsn, owner)

    async def open(self) -> Opening:
        """Connect, and make or migrate the tables; another server that has the database is an error."""
        await self._journal.start()
        new = await self._journal.read(learners.never_used)
        return Opening("the database was new" if new else "")

    async def close(self) -> None:
        """Finish what waits and close the connections."""
        await self._journal.close()

    def example_source(self) -> PostgresExamples:
        """How the trainer's process gets at raw examples."""
        return PostgresExamples(self._dsn)

    async def erase(self) -> bool:
        """Nothing is left to do: a dropped table frees its file at the commit."""
        return True

    # ---- several servers --------------------------------------------------------------------------------------------

    async def claim(self, learner: int, owner: str, address: str) -> int:
        """Give a learner an owner."""
        return await self._journal.write(learners.claim, learner, owner, address)

    async def release(self, learner: int, epoch: int) -> None:
        """Give a learner up."""
        await self._journal.write(learners.release, learner, epoch)

    async def owners(self) -> list[OwnerRow]:
        """All learners, with their owners."""
        return await self._journal.read(learners.owners)

    def changes(self) -> AsyncIterator[Change]:
        """What any server changes from now on."""
        return changes.changes(self._dsn)

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def open_stream(self, learner: int, name: str, boundaries: str) -> StreamRow:
        """Take up a stream, or make it."""
        return await self._journal.write(streams.open_stream, learner, name, boundaries)

    async def room(self) -> None:
        """Wait until more may be appended."""
        await self._journal.room()

    def append(self, arrival: Arrival) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a batch."""
        return self._journal.submit(lambda transaction: streams.append(transaction, arrival), arrival.bytes)

    def close_episode(self, learner: int, stream: int, sequence: int) -> asyncio.Future[list[EpisodeRow]]:
        """Keep a producer's mark."""
        return self._journal.submit(lambda transaction: streams.mark(transaction, learner, stream, sequence), 0)

    async def open_slices(self, stream: int) -> list[BatchSlice]:
        """A stream's open examples."""
        return await self._journal.read(streams.open_slices, stream)

    async def episodes_of_stream(self, stream: int, after_sequence: int, limit: int) -> list[EpisodeRow]:
        """The newest episodes that end after a sequence number, in order."""
        condition = "e.stream = %s AND e.last_sequence > %s ORDER BY e.number DESC LIMIT %s"
        after = min(after_sequence, schema.LARGEST)
        return (await self._journal.read(streams.episodes_where, condition, stream, after, limit))[::-1]

    async def empty_marks(self, stream: int, after_sequence: int, limit: int) -> list[int]:
        """The newest marks after a sequence number that closed nothing, in order."""
        return await self._journal.read(streams.empty_marks, stream, min(after_sequence, schema.LARGEST), limit)

    # ---- lessons ----------------------------------------------------------------------------------------------------

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson, or find it."""
        return self._journal.submit(lambda transaction: lessons.keep(transaction, lesson), lesson.bytes)

    async def drop_lesson(self, learner: int, place: int) -> None:
        """Take back a lesson."""
        await self._journal.write(lessons.drop, learner, place)

    async def last_lesson(self, learner: int) -> BeyondKey | None:
        """Where the last lesson stands."""
        return await self._journal.read_in_time(lessons.last, learner)

    async def beyond(self, learner: int, after: BeyondKey, nbytes: int) -> list[Beyond]:
        """What is not part of a version yet."""
        return await self._journal.read_in_time(lessons.beyond, learner, after, nbytes)

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
        return await self._journal.write(learners.create, new, limit, self._address)

    async def delete_learner(self, learner: int) -> None:
        """Delete a learner."""
        await self._journal.write(learners.delete, learner)

    async def enter(self, found: Sequence[FoundLearner]) -> None:
        """Write learners that were found by their files."""
        await self._journal.write(learners.enter, found, self._address)

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
        return self._journal.submit(lambda transaction: episodes.forget(transaction, learner, label), 0)

    def relabel(self, change: Relabelling) -> asyncio.Future[int]:
        """Give a class another name, or make it part of another."""
        return self._journal.submit(lambda transaction: episodes.relabel(transaction, change), 0)

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
            lambda transaction: episodes.publish(transaction, version, forget, remember, relabel), 0
        )

    async def version(self, learner: int, version: int) -> VersionRow | None:
        """One version."""
        return await self._journal.read(versions.version, learner, version)

    async def qualities(self, learner: int) -> list[QualityRow]:
        """How good the newest versions are."""
        return await self._journal.read(versions.qualities, learner)

    async def episodes_learned(self, learner: int) -> int:
        """Episodes that were learned in all."""
        return await self._journal.read(versions.episodes_learned, learner)

    async def add_snapshot(self, new: NewSnapshot, limit: int) -> SnapshotRow:
        """Record a snapshot that is kept on request."""
        return await self._journal.write(versions.add_snapshot, new, limit)

    async def snapshots(self, learner: int) -> list[SnapshotRow]:
        """A learner's snapshots, newest first."""
        return await self._journal.read(versions.snapshots, learner)

    async def snapshot(self, learner: int, name: str) -> SnapshotRow:
        """One snapshot."""
        return await self._journal.read(versions.snapshot, learner, name)

    async def delete_snapshots(self, learner: int, names: list[str]) -> None:
        """Delete the records of snapshots."""
        await self._journal.write(versions.delete_snapshots, learner, names)

    # ---- damage -----------------------------------------------------------------------------------------------------

    async def mark_damaged(self, snapshot: SnapshotRow) -> None:
        """Note that a snapshot's file is not what was written."""
        await self._journal.write(versions.mark_damaged, snapshot)

    async def add_corruption_event(self, event: CorruptionEvent) -> None:
        """Write down what was found damaged."""
        await self._journal.write(versions.add_corruption_event, event)

    async def corruption_events(self) -> list[CorruptionEvent]:
        """The newest hundred."""
        return await self._journal.read(versions.corruption_events)
