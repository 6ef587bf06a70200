"""Forgetting a class: out of both memories, out of the journal, out of every file, before the call returns.

It is carried through or changes nothing. A class that was forgotten stays so: it is taken out again of every older
snapshot before that may serve (`forget_in`).
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass

from sharp_engine import Label, Learner, UnknownClassError
from sharp_server.config.model import ServerConfig
from sharp_server.errors import ObjectsUnavailable, RpcError
from sharp_server.learners import events
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.model import DamagedSnapshotError, load_learner
from sharp_server.runtime.metrics import Metrics
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import Storage
from sharp_server.storage.manifest import manifest_of, write_manifest
from sharp_server.storage.records import Forgotten, NewVersion, Published, SnapshotRow
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

log = logging.getLogger(__name__)

_SECONDS_TO_ERASE = 60.0
"""How long forgetting a class waits for whoever reads the journal."""


@dataclass(frozen=True)
class ForgetReport:
    """What forgetting a class came to."""

    version: int
    ltm_entries: int
    stm_entries: int
    journal: Forgotten
    holding: list[SnapshotRow]
    deleted: list[SnapshotRow]


class Forgetting:
    """Makes learners forget, one class at a time."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        files: VersionFiles,
        storage: Storage,
        publisher: Publisher,
        scheduler: Scheduler,
        thread: BackgroundThread,
        metrics: Metrics,
        teaching: Teaching,
    ) -> None:
        self._config, self._folder, self._files, self._storage = config, folder, files, storage
        self._publisher, self._scheduler, self._thread, self._metrics = publisher, scheduler, thread, metrics
        self._teaching = teaching

    async def forget(self, served: ServedLearner, label: Label, delete_older: bool) -> ForgetReport:
        """Take a class out of everything that could bring it up."""
        with served.change():
            async with self._scheduler.paused(served), served.files:
                text = json.dumps(label)
                summary = served.model.summary
                held = {entry.label: entry for entry in summary.classes} if summary is not None else {}
                if label not in served.classes and label not in held:
                    if text not in await self._storage.forgotten(served.id):
                        message = f"the learner has never met the class {str(label)[:80]!r}"
                        raise RpcError("CLASS_NOT_FOUND", message, label=label, fields=("label",))
                    journal = Forgotten(0, 0, 0, ())
                else:
                    journal = await self._forget(served, label, text, label in held)
                await self._files.clear_work(served)
                await self.write_manifest(served)
                holding, deleted = await self._older_snapshots(served, label, text, delete_older)
                await self._leave_nothing(served, {row.name for row in deleted})
                log.info("%s forgot a class: %d examples left the journal", served.name, journal.examples)
                entry = held.get(label)
                ltm, stm = (entry.ltm_entries, entry.stm_entries) if entry is not None else (0, 0)
                return ForgetReport(served.model.version, ltm, stm, journal, holding, deleted)

    async def _forget(self, served: ServedLearner, label: Label, text: str, held: bool) -> Forgotten:
        """Out of the memories and out of the journal in one transaction."""
        ordinal: int | None = None

        async def record(version: NewVersion) -> Published:
            nonlocal ordinal
            queued = self._storage.publish(version, forget=text)
            # In the very moment in which the transaction is queued: batches after it bring a new class.
            ordinal = served.forget_class(label)
            return await queued

        try:
            if held:
                learner = await self.load_head(served)
                await self._thread.run_in_thread(forget_in, learner, [label])
                done = await self._publisher.publish_changed(served, learner, "forgotten", record)
                removed = done.forgotten
                assert removed is not None
            else:
                async with self._teaching.held(served):
                    queued = self._storage.forget(served.id, text)
                    ordinal = served.forget_class(label)
                    removed = await queued
                    await self._teaching.serve_again(served)
        except BaseException:
            served.classes.take_back(label, ordinal)
            raise
        self._metrics.discarded.inc(len(removed.discarded))
        left = await self._storage.unlearned_episodes(served.id)
        for episode in removed.discarded:
            served.emit(events.discarded(episode, "forgotten"), episode.stream)
        served.backlog.forgot(left, removed.discarded, removed.bytes, removed.open_examples)
        return removed

    async def load_head(self, served: ServedLearner) -> Learner:
        """The learner behind the version that serves."""
        if served.head is None:
            raise RpcError("NOTHING_LEARNED", "there is no version to change")
        return await self.load(served, *served.head)

    async def load(self, served: ServedLearner, name: str, sha256: bytes) -> Learner:
        """The learner in a snapshot, or the refusal."""
        device = self._config.predictor.device
        try:
            return await self._thread.run_in_thread(load_learner, self._files, served.uid, name, sha256, device)
        except DamagedSnapshotError:
            raise RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=name) from None

    async def forget_again(self, served: ServedLearner, learner: Learner, row: SnapshotRow) -> list[Label]:
        """Take out of a loaded snapshot the classes that were forgotten after it was made."""
        forgotten = await self._storage.forgotten(served.id)
        late = [json.loads(text) for text, newest in forgotten.items() if row.id <= newest]
        return await self._thread.run_in_thread(forget_in, learner, late)

    async def write_manifest(self, served: ServedLearner) -> None:
        """Let the learner's folder say what was forgotten and renamed."""
        manifest = await manifest_of(self._storage, served.row)
        await self._thread.run_in_thread(write_manifest, self._folder.of_learner(served.uid), manifest)

    async def _older_snapshots(
        self, served: ServedLearner, label: Label, text: str, delete: bool
    ) -> tuple[list[SnapshotRow], list[SnapshotRow]]:
        """Snapshots that still hold the class, and those that were deleted for it."""
        newest = (await self._storage.forgotten(served.id)).get(text, 0)
        older = await self._storage.older_names(served.id, text)
        bounds = {label: newest, **{json.loads(name): last for name, last in older.items()}}
        rows = await self._storage.snapshots(served.id)
        holding = [
            row
            for row in rows
            if any(row.id <= last and name in json.loads(row.classes) for name, last in bounds.items())
        ]
        if not (delete and holding):
            return holding, []
        names = [row.name for row in holding]
        await self._storage.delete_snapshots(served.id, names)
        await self._files.delete_snapshots(served, names)
        return [], holding

    async def _leave_nothing(self, served: ServedLearner, deleted: set[str]) -> None:
        """Delete what else may hold examples: files and objects that a crash left, journals set aside, the log."""
        kept = {row.name for row in await self._storage.snapshots(served.id)} - deleted
        swept = await self._thread.run_in_thread(self._sweep, served.uid, kept)
        if swept:
            log.warning("%d files left behind or set aside were deleted, for they may hold the class", swept)
        try:
            await self._files.delete_unneeded(served)
        except ObjectsUnavailable:
            message = "the class is forgotten, but objects that hold it can't be deleted while their store is gone"
            raise RpcError("OBJECT_STORE_UNAVAILABLE", message, retry=1.0) from None
        deadline = time.monotonic() + _SECONDS_TO_ERASE
        while not await self._storage.erase():
            if time.monotonic() > deadline:
                message = "the class is forgotten, but its examples can't be erased while the journal is being read"
                raise RpcError("LEARNER_BUSY", message, retry=1.0)

    def _sweep(self, uid: str, kept: set[str]) -> int:
        return self._folder.sweep_learner(uid, kept) + self._folder.delete_set_aside()


def forget_in(learner: Learner, labels: list[Label]) -> list[Label]:
    """Forget classes; returns those that memories held. An episode in progress is given up."""
    if learner.running is not None:
        learner.abandon_episode()
    held = set(learner.inspect().classes)
    gone = []
    for label in labels:
        try:
            learner.forget(label)
        except UnknownClassError:
            continue
        if label in held:
            gone.append(label)
    return gone
