"""`interface.SharedStorage` over PostgreSQL: each operation is one statement function, run by the writer or a reader.

It decides nothing: what an operation means is in `streams`, `episodes`, `lessons`, `learners` and `versions`, how it
reaches PostgreSQL's disk in `journal`, and who may write in `transaction` and `locks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from sharp_server.storage.interface import Opening
from sharp_server.storage.postgres import changes, episode_rows, episodes, lessons, streams, versions
from sharp_server.storage.postgres import classes as class_statements
from sharp_server.storage.postgres import learners as learner_statements
from sharp_server.storage.postgres.example_source import PostgresExamples
from sharp_server.storage.postgres.journal import Journal
from sharp_server.storage.postgres.transaction import Transaction
from sharp_server.storage.records import (
    Arrival,
    Change,
    EpisodeRow,
    FoundLearner,
    LearnerRow,
    LessonRow,
    NewLearner,
    NewLesson,
    NewVersion,
    Published,
    Relabelling,
)

P = ParamSpec("P")
T = TypeVar("T")

_Operation = Callable[Concatenate["PostgresStorage", P], Coroutine[Any, Any, T]]


def _read(statement: Callable[Concatenate[Transaction, P], Awaitable[T]]) -> _Operation[P, T]:
    """An operation that is one statement function, run beside the writer."""

    async def operation(storage: PostgresStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await storage._journal.read(statement, *args, **kwargs)

    return operation


def _read_in_time(statement: Callable[Concatenate[Transaction, P], Awaitable[T]]) -> _Operation[P, T]:
    """The same, waiting for a database that is away."""

    async def operation(storage: PostgresStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await storage._journal.read_in_time(statement, *args, **kwargs)

    return operation


def _written(statement: Callable[Concatenate[Transaction, P], Awaitable[T]]) -> _Operation[P, T]:
    """An operation that is one statement function, run by the writer and on the disk when it returns."""

    async def operation(storage: PostgresStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await storage._journal.write(statement, *args, **kwargs)

    return operation


def _queued(
    statement: Callable[Concatenate[Transaction, P], Awaitable[T]],
) -> Callable[Concatenate[PostgresStorage, P], asyncio.Future[T]]:
    """The same, queued at the very moment of the call: whoever waits for the future waits for the disk."""

    def operation(storage: PostgresStorage, /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return storage._journal.submit(lambda transaction: statement(transaction, *args, **kwargs), 0)

    return operation


class PostgresStorage:
    """The journal in one PostgreSQL database.

    `interface.Storage` says what each operation means: here stands only which statement function it is.
    """

    def __init__(self, dsn: str, owner: str = "", address: str = "") -> None:
        """`owner`: the name of this server among those that share the database; empty: it is the only one.

        `address` is where what it creates is reached.
        """
        self._dsn, self._address = dsn, address
        self._journal = Journal(dsn, owner)

    async def open(self) -> Opening:
        """Connect, and make or migrate the tables; another server that has the database is an error."""
        await self._journal.start()
        new = await self._journal.read(learner_statements.never_used)
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

    claim = _written(learner_statements.claim)
    release = _written(learner_statements.release)
    owners = _read(learner_statements.owners)

    def changes(self) -> AsyncIterator[Change]:
        """What any server changes from now on."""
        return changes.changes(self._dsn)

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
        return self._journal.submit(lambda transaction: streams.append(transaction, arrival), arrival.bytes)

    # ---- lessons ----------------------------------------------------------------------------------------------------

    drop_lesson = _written(lessons.drop)
    last_lesson = _read_in_time(lessons.last)
    beyond = _read_in_time(lessons.beyond)

    def keep_lesson(self, lesson: NewLesson) -> asyncio.Future[LessonRow]:
        """Keep a lesson, or find it."""
        return self._journal.submit(lambda transaction: lessons.keep(transaction, lesson), lesson.bytes)

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

    async def create_learner(self, new: NewLearner, limit: int) -> LearnerRow:
        """Make a learner, reached here."""
        return await self._journal.write(learner_statements.create, new, limit, self._address)

    async def enter(self, found: Sequence[FoundLearner]) -> None:
        """Write learners that were found by their files, reached here."""
        await self._journal.write(learner_statements.enter, found, self._address)

    # ---- versions, snapshots, damage --------------------------------------------------------------------------------

    version = _read(versions.version)
    qualities = _read(versions.qualities)
    episodes_learned = _read(versions.episodes_learned)
    add_snapshot = _written(versions.add_snapshot)
    snapshots = _read(versions.snapshots)
    snapshot = _read(versions.snapshot)
    delete_snapshots = _written(versions.delete_snapshots)
    mark_damaged = _written(versions.mark_damaged)
    add_corruption_event = _written(versions.add_corruption_event)
    corruption_events = _read(versions.corruption_events)

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
