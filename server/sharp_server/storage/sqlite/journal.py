"""The journal's one writer: a thread that gathers what waits and commits it in one transaction.

One piece of work that fails takes nothing with it: the group is then run again, each piece in a savepoint of its own.
So work changes nothing but the database, and may run twice. An answer is given only after the commit, that is after
the fsync. If the commit fails (full disk, failing writes), nothing of the group was kept, everyone in it hears so,
and the next group is tried afresh. Nobody else may write to the file.

Whoever brings much waits for room first. There is room again as soon as a group only has to reach the disk, so that the
next one is read while the disk is busy, and no earlier: on few cores reading would take turns with writing, and then
have nothing left to do while the disk is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sharp_server.errors import JournalUnavailable, disk_is_full
from sharp_server.storage.data_folder import QUARANTINE_PREFIX
from sharp_server.storage.interface import UnsupportedFormatError
from sharp_server.storage.repair import wal
from sharp_server.storage.sqlite import schema

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_GROUP_BYTES = 8 << 20
_GROUP_ITEMS = 256
_WAITING_BYTES = 24 << 20
_WAITING_ITEMS = 256
"""More than this is not taken in before some of it was handed to SQLite."""


@dataclass(slots=True)
class _Work:
    future: asyncio.Future[Any]
    run: Callable[[sqlite3.Connection], Any]
    weight: int


class Journal:
    """Gives asynchronous access to the journal's file; opened by `start`, on the event loop that it then serves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped_frames = 0
        """Frames of the write-ahead log that were committed once and are damaged."""
        self.commits = 0
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._waiting_items = self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="journal-read")
        self._local = threading.local()
        self._thread = threading.Thread(target=self._write_loop, name="journal-write", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open or make the file, in whatever thread; raises sqlite3.DatabaseError if it is damaged beyond use."""
        self._loop = loop
        stale = wal.set_aside_if_stale(self.path, f"{QUARANTINE_PREFIX}{int(time.time())}-")
        promised = stale or wal.expected(self.path)
        self._connection = schema.connect(self.path)
        witness = None
        try:
            witness = wal.Witness(self._connection, self.path)
            self.dropped_frames = promised.lost(0 if stale else witness.recovered())
            if not schema.is_sound(self._connection):
                raise sqlite3.DatabaseError("the journal's structure is damaged")
            schema.create(self._connection)
        except (sqlite3.Error, UnsupportedFormatError):
            self._connection.close()
            if witness is not None:
                witness.close()
            raise
        self._witness = witness
        self._thread.start()

    async def write(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in a transaction; returns its result once that is on disk."""
        result: T = await self.submit(lambda connection: work(connection, *args, **kwargs), 0)
        return result

    def submit(self, run: Callable[[sqlite3.Connection], T], weight: int) -> asyncio.Future[T]:
        """The same without waiting; `weight` is about how many bytes it writes. Order is kept."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting_items += 1
        self._waiting_bytes += weight
        self._queue.put(_Work(future, run, weight))
        return future

    async def room(self) -> None:
        """Wait until little enough waits to be handed to SQLite that more may be submitted."""
        while self._waiting_items >= _WAITING_ITEMS or self._waiting_bytes >= _WAITING_BYTES:
            self._room.clear()
            await self._room.wait()

    def _handed_over(self, items: int, weight: int) -> None:
        self._waiting_items -= items
        self._waiting_bytes -= weight
        self._room.set()

    async def read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` against what is committed, beside the writer."""
        return await self._loop.run_in_executor(self._readers, lambda: work(self._reader(), *args, **kwargs))

    async def erase(self) -> bool:
        """Bring deletions into the file and empty the write-ahead log, so that nothing deleted is left on disk.

        False: somebody reads the log, so it is still there.
        """
        return bool(await self.submit(_ERASE, 0))

    async def close(self) -> None:
        """Finish what waits and close the file."""
        if not self._thread.is_alive():  # it never started: the server ended before
            return
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        self._readers.shutdown(wait=True)
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        self._witness.close()

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = schema.connect(self.path, readonly=True)
        connection: sqlite3.Connection = self._local.connection
        return connection

    # ---- the writer's thread ------------------------------------------------------------------------------------

    def _write_loop(self) -> None:
        stop = False
        while not stop:
            group, weight = [self._queue.get()], 0
            while group[-1] is not None and len(group) < _GROUP_ITEMS and weight < _GROUP_BYTES:
                weight += group[-1].weight
                try:
                    group.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            stop = group[-1] is None
            outcomes = self._carry_out([work for work in group if work is not None])
            if outcomes:
                self._on_loop(_settle, outcomes)

    def _carry_out(self, works: list[_Work]) -> list[tuple[_Work, Any, BaseException | None]]:
        """Write a group, then empty the log if somebody asked for that."""
        erasing = [work for work in works if work.run is _ERASE]
        writing = [work for work in works if work.run is not _ERASE]
        outcomes = self._commit(writing) if writing else []
        if erasing:
            self._make_room(erasing)
            outcomes += self._erase(erasing)
        return outcomes

    def _on_loop(self, callback: Callable[..., None], *values: object) -> None:
        """Call something on the loop."""
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *values)

    def _make_room(self, works: list[_Work]) -> None:
        self._on_loop(self._handed_over, len(works), sum(work.weight for work in works))

    def _commit(self, works: list[_Work]) -> list[tuple[_Work, Any, BaseException | None]]:
        waiting = works
        try:
            outcomes = self._run_all(works)
            waiting = []
            self._make_room(works)
            self._connection.execute("COMMIT")
            self.commits += 1
            return outcomes
        except Exception as error:
            self._make_room(waiting)
            self._recover()
            log.warning("the journal could not be written, nothing of %d items was kept: %s", len(works), error)
            failure = JournalUnavailable(str(error)) if disk_is_full(error) else error
            return [(work, None, failure) for work in works]

    def _run_all(self, works: list[_Work]) -> list[tuple[_Work, Any, BaseException | None]]:
        """Begin a transaction and run everything in it; one that fails leaves nothing behind."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            return [(work, work.run(connection), None) for work in works]
        except Exception as error:  # once more, each by itself: this is rare
            if disk_is_full(error):
                raise
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        outcomes: list[tuple[_Work, Any, BaseException | None]] = []
        for work in works:
            connection.execute("SAVEPOINT work")
            try:
                outcomes.append((work, work.run(connection), None))
            except Exception as error:  # for whoever asked; the others go on
                if disk_is_full(error):
                    raise
                connection.execute("ROLLBACK TO work")
                outcomes.append((work, None, error))
            connection.execute("RELEASE work")
        return outcomes

    def _recover(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = schema.connect(self.path)

    def _erase(self, works: list[_Work]) -> list[tuple[_Work, Any, BaseException | None]]:
        error: BaseException | None = None
        done = False
        try:
            for attempt in range(5):
                done = not self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                if done:
                    break
                time.sleep(0.02 * 2**attempt)
            else:
                log.warning("a reader held the write-ahead log; it is emptied with the next deletion")
        except sqlite3.Error as failure:
            error = JournalUnavailable(str(failure)) if disk_is_full(failure) else failure
        return [(work, done, error) for work in works]


def _ERASE(connection: sqlite3.Connection) -> bool:  # noqa: N802 (a mark that the writer compares with)
    """Stands for emptying the write-ahead log, which can't happen within a transaction."""
    raise NotImplementedError


def _settle(outcomes: list[tuple[_Work, Any, BaseException | None]]) -> None:
    for work, result, error in outcomes:
        if work.future.done():  # whoever asked has gone
            continue
        if error is not None:
            work.future.set_exception(error)
        else:
            work.future.set_result(result)
