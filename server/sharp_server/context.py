"""The front process as a whole: everything it owns, how it starts from the data folder and how it ends.

Start-up trusts nothing on disk: the newest snapshot that is sound serves, and whatever was lost is logged, counted and
told in the status.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sharp.v1 import server_pb2
from sharp_engine import SharpError, SnapshotVersionError
from sharp_server.config.model import ServerConfig
from sharp_server.errors import JournalUnavailable, RpcError, short
from sharp_server.learners.creation import Creation
from sharp_server.learners.lifecycle import Changes
from sharp_server.learners.served_learner import Registry, ServedLearner
from sharp_server.prediction.batcher import Batcher
from sharp_server.prediction.model import load_learner
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage import recovery
from sharp_server.storage.data_folder import QUARANTINE_PREFIX, DataFolder
from sharp_server.storage.manifest import manifest_of, write_manifest
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite import schema
from sharp_server.storage.sqlite import streams as ledger_ingest
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.learners import LearnerRow, SnapshotRow
from sharp_server.storage.sqlite.schema import OtherFormat
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

log = logging.getLogger(__name__)

T = TypeVar("T")


class ServerContext:
    """What the services work with."""

    def __init__(self, config: ServerConfig, folder: DataFolder) -> None:
        self.config, self.folder = config, folder
        self.started = time.time()
        self.state = server_pb2.SERVER_STATE_STARTING
        self.metrics = Metrics()
        self.registry = Registry()
        self.journal = Journal(folder.journal)
        self.publisher = Publisher(config, folder, self.journal)
        self.scheduler = Scheduler(config, folder, self.journal, self.registry, self.publisher, self.metrics)
        self.creation = Creation(config, folder, self.journal, self.registry)
        self.batcher = Batcher(config.batching, config.predictor, self.metrics)
        self.changes = Changes(
            config, folder, self.journal, self.registry, self.publisher, self.scheduler, self.batcher, self.metrics
        )
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="decode")
        self.metrics.watch(self.registry, lambda: self.scheduler.pid, folder.free_bytes)
        self.stopping = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry something through to its end even if the client leaves meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def unless_stopping(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait for something that may never come, but not beyond the server's end."""
        task, stopping = asyncio.ensure_future(waiting), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RpcError("SERVER_NOT_READY", "the server is stopping")
            return task.result()
        finally:
            task.cancel()
            stopping.cancel()

    # ---- start ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Take up everything that is in the data folder, then begin to train."""
        await self._open_journal()
        rows: list[LearnerRow] = await self.journal.read(ledger_learners.learners)
        kept: dict[str, set[str]] = {}
        for row in rows:
            snapshots = await self.journal.read(ledger_learners.snapshots, row.id)
            kept[row.uid] = {snapshot.name for snapshot in snapshots}
        swept = await self.publisher.run_in_thread(self.folder.sweep, kept)
        if swept:
            log.info("%d files that a crash left behind were deleted", swept)
        for row in rows:
            self.folder.make_learner(row.uid)
            try:
                known = await self.journal.read(manifest_of, row.id)
                await self.publisher.run_in_thread(write_manifest, self.folder.of_learner(row.uid), known)
                served = await self._take_up(row)
            except (ValueError, KeyError, TypeError, SharpError) as error:
                await self._damage(
                    row.name, "", row.version, 0, f"its record in the journal is damaged: {short(error)}"
                )
                continue
            self.registry.add(served)
        try:
            await self.journal.erase()
        except JournalUnavailable as error:
            log.warning("the write-ahead log could not be emptied yet: %s", error)
        self.scheduler.start()
        self.state = server_pb2.SERVER_STATE_SERVING

    async def _open_journal(self) -> None:
        why = "the journal was missing"
        try:
            self.journal.start()
        except sqlite3.Error as error:
            if not schema.is_damage(error):
                raise
            why = await self._begin_anew(error)
        if await self.journal.read(recovery.never_used):
            await self._recover(why)
        if self.journal.dropped_frames:
            detail = f"{self.journal.dropped_frames} pages of the journal's log were damaged and dropped"
            await self._damage("", "", 0, 0, detail)

    async def _begin_anew(self, error: Exception) -> str:
        """Set a damaged journal aside and begin a new one with what can still be read of it; returns what happened."""
        aside = f"{QUARANTINE_PREFIX}{int(self.started)}-"
        for suffix in ("-shm", "-wal", ""):
            path = self.folder.journal.with_name(self.folder.journal.name + suffix)
            if path.exists():
                path.rename(path.with_name(aside + path.name))
        damaged = self.folder.journal.with_name(aside + self.folder.journal.name)
        saved = await self.publisher.run_in_thread(_salvaged, damaged, self.folder)
        self.journal.start()
        what = f"the journal was damaged ({short(error)}) and is kept as {damaged.name}"
        if saved:
            await self._damage("", "", 0, 0, f"{what}; {saved} learners were saved from it")
        return what

    async def _recover(self, why: str) -> None:
        """The journal is new: whoever has snapshots comes back as they hold it."""
        found, unknown_folders = await self.publisher.run_in_thread(recovery.find, self.folder)
        aside = f"{QUARANTINE_PREFIX}{int(self.started)}-"
        for stranger in unknown_folders:
            stranger.rename(self.folder.path / f"{aside}{stranger.name}")
        if not found and not unknown_folders and not list(self.folder.path.glob(f"{aside}*")):
            return  # a new server
        for learner in found:
            self.folder.clear_work(learner.uid)
        await self.journal.write(recovery.enter, found)
        detail = f"{why}; {len(found)} learners came back from their snapshots, what was not learned yet is lost"
        await self._damage("", "", 0, 0, detail)

    async def _take_up(self, row: LearnerRow) -> ServedLearner:
        served = ServedLearner(row)
        for ordinal, label in await self.journal.read(ledger_learners.classes, row.id):
            served.known[json.loads(label)] = ordinal
            served.on_disk.add(ordinal)
        condition = "e.learner = ? AND e.state IN ('waiting', 'parked')"
        for episode in await self.journal.read(ledger_ingest.episodes_where, condition, row.id):
            served.episodes[episode.number] = episode
        served.bytes, served.open_examples = await self.journal.read(_unlearned, row.id)
        if row.version:
            await self._take_up_model(served, row)
        return served

    async def _take_up_model(self, served: ServedLearner, row: LearnerRow) -> None:
        """Serve the newest sound snapshot; one that is older than the newest is served under a new number."""
        snapshots: list[SnapshotRow] = await self.journal.read(ledger_learners.snapshots, row.id)
        # The head first, then whatever this learner itself has been, newest first; what was imported comes last.
        order = sorted(snapshots, key=lambda s: (s.id != row.head, s.origin == "imported", -s.version, -s.id))
        lost: list[tuple[SnapshotRow, str]] = []
        for snapshot in order:
            if snapshot.damaged:
                continue
            path = self.folder.snapshot(served.uid, snapshot.name)
            try:
                learner = await self.publisher.run_in_thread(
                    load_learner, path, snapshot.sha256, self.config.predictor.device
                )
            except SnapshotVersionError as error:
                raise OtherFormat(f"{served.name}: {error}: start the server that wrote it") from None
            except (SharpError, OSError) as error:
                lost.append((snapshot, short(error)))
                await self._note(ledger_learners.mark_damaged, snapshot)
                served.damaged += 1
                continue
            served.model = await self.publisher.run_in_thread(_model, learner, row.version)
            served.head = (snapshot.name, snapshot.sha256)
            if snapshot.id != row.head:
                await self.changes.serve_older(served, learner, snapshot)
            break
        else:
            log.error("%s: no snapshot is sound; nothing serves", served.name)
            served.model = await self.publisher.run_in_thread(_nothing, row.version)
        for snapshot, why in lost:
            detail = f"snapshot of version {snapshot.version} is damaged: {why}"
            await self._damage(served.name, snapshot.name, snapshot.version, served.model.version, detail)

    async def _damage(self, learner: str, snapshot: str, lost: int, serving: int, detail: str) -> None:
        log.error("%s", f"{learner}: {detail}; version {serving} serves" if learner else detail)
        self.metrics.damages.inc()
        await self._note(ledger_learners.add_damage, learner, snapshot, lost, serving, detail)

    async def _note(self, work: Callable[..., None], *values: Any) -> None:
        """Write down what was found, unless there is no room for it: a full disk is no reason not to start."""
        try:
            await self.journal.write(work, *values)
        except JournalUnavailable as error:
            log.warning("the journal has no room to keep that: %s", error)

    # ---- end ------------------------------------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Take no more calls; those that never end by themselves are told to end."""
        self.state = server_pb2.SERVER_STATE_STOPPING
        self.stopping.set()
        for served in self.registry:
            for session in list(served.sessions.values()):
                session.fail(RpcError("SERVER_NOT_READY", "the server is stopping"))
            served.notify()

    async def close(self) -> None:
        """Stop the trainer at a step and close what is open."""
        await self.scheduler.stop()
        if self._background:
            await asyncio.wait(list(self._background), timeout=5.0)
        await self.journal.close()
        self.batcher.close()
        self.publisher.close()
        self.threads.shutdown(wait=False, cancel_futures=True)


def _salvaged(damaged: Path, folder: DataFolder) -> int:
    """Make a new journal with whatever a damaged one still tells; returns how many learners there are."""
    from sharp_server.storage.repair.salvage import salvage

    connection = schema.connect(folder.journal)
    try:
        schema.create(connection)
        return salvage(damaged, connection, folder)
    except sqlite3.Error as error:
        log.error("nothing could be saved from the damaged journal: %s", error)
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            folder.journal.with_name(folder.journal.name + suffix).unlink(missing_ok=True)
        return 0
    finally:
        connection.close()


def _model(learner: Any, version: int) -> Any:
    from sharp_server.prediction.model import model_of

    return model_of(learner, version)


def _nothing(version: int) -> Any:
    from sharp_server.prediction.model import Model

    return Model(version=version)


def _unlearned(connection: sqlite3.Connection, learner: int) -> tuple[int, int]:
    """Bytes not learned yet, and open examples."""
    nbytes = connection.execute(
        "SELECT coalesce(sum(p.bytes), 0) FROM parts p JOIN examples e ON e.part = p.id WHERE p.learner = ?", (learner,)
    ).fetchone()[0]
    opened = connection.execute(
        "SELECT coalesce(sum(open_examples), 0) FROM streams WHERE learner = ?", (learner,)
    ).fetchone()[0]
    return nbytes, opened
