"""Changes of a learner that training must stand still for: forgetting a class, restoring a snapshot, deleting.

Each is carried through or changes nothing, one at a time per learner. A class that was forgotten stays so: it is taken
out again of every older snapshot before that may serve.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from dataclasses import dataclass, replace
from typing import Any

from sharp_engine import Label, Learner, UnknownClassError
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError
from sharp_server.learners import events
from sharp_server.learners.served_learner import Registry, ServedLearner
from sharp_server.prediction.batcher import Batcher
from sharp_server.prediction.model import DamagedSnapshot, load_learner, model_of
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.manifest import manifest_of, write_manifest
from sharp_server.storage.sqlite import episodes as ledger_episodes
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite.episodes import Forgotten
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.learners import SnapshotRow
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


@dataclass(frozen=True)
class RestoreReport:
    """What restoring a snapshot came to."""

    version: int
    previous: int
    undone: int
    forgotten: list[Label]


class Changes:
    """Changes learners while they serve."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        journal: Journal,
        registry: Registry,
        publisher: Publisher,
        scheduler: Scheduler,
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._config, self._folder, self._journal, self._registry = config, folder, journal, registry
        self._publisher, self._supervisor, self._batcher, self._metrics = publisher, scheduler, batcher, metrics

    # ---- forgetting -----------------------------------------------------------------------------------------------

    async def forget(self, served: ServedLearner, label: Label, delete_older: bool) -> ForgetReport:
        """Take a class out of everything that could bring it up."""
        with served.changing():
            async with self._supervisor.paused(served), served.files:
                text = json.dumps(label)
                before = await self._journal.read(ledger_learners.forgotten, served.id)
                held = {entry[0]: entry for entry in served.model.figures.get("classes", ())}
                if label not in served.known and text not in before and label not in held:
                    message = f"the learner has never met the class {str(label)[:80]!r}"
                    raise RpcError("CLASS_NOT_FOUND", message, label=label, fields=("label",))
                ltm = stm = 0
                journal = Forgotten(0, 0, 0, ())
                if label in held:
                    _, ltm, stm, _ = held[label]
                if label in served.known or label in held:
                    journal = await self._forget(served, label, text, label in held)
                self._folder.clear_work(served.uid)
                known = await self._journal.read(manifest_of, served.id)
                await self._publisher.run_in_thread(write_manifest, self._folder.of_learner(served.uid), known)
                newest = (await self._journal.read(ledger_learners.forgotten, served.id)).get(text, 0)
                rows: list[SnapshotRow] = await self._journal.read(ledger_learners.snapshots, served.id)
                holding = [row for row in rows if row.id <= newest and label in json.loads(row.classes)]
                deleted: list[SnapshotRow] = []
                if delete_older and holding:
                    names = [row.name for row in holding]
                    await self._journal.write(ledger_learners.delete_snapshots, served.id, names)
                    self._folder.delete_snapshots(served.uid, names)
                    holding, deleted = [], holding
                await self._leave_nothing(served, {row.name for row in rows} - {row.name for row in deleted})
                log.info("%s forgot a class: %d examples left the journal", served.name, journal.examples)
                return ForgetReport(served.model.version, ltm, stm, journal, holding, deleted)

    async def _leave_nothing(self, served: ServedLearner, kept: set[str]) -> None:
        """Delete what else may hold examples: files that a crash left, journals set aside, the write-ahead log."""
        swept = self._folder.sweep_learner(served.uid, kept) + self._folder.delete_set_aside()
        if swept:
            log.warning("%d files left behind or set aside were deleted, for they may hold the class", swept)
        deadline = time.monotonic() + _SECONDS_TO_ERASE
        while not await self._journal.erase():
            if time.monotonic() > deadline:
                message = "the class is forgotten, but its examples can't be erased while the journal is being read"
                raise RpcError("LEARNER_BUSY", message, retry=1.0)

    async def _forget(self, served: ServedLearner, label: Label, text: str, held: bool) -> Forgotten:
        """Out of the memories and out of the journal in one transaction."""
        ordinal = served.known.get(label)

        def at_once() -> None:
            # In the very moment in which the transaction is queued: batches after it bring a new class.
            served.known.pop(label, None)
            served.epoch += 1

        def erase(connection: sqlite3.Connection) -> Forgotten:
            return ledger_episodes.forget(connection, served.id, text)

        try:
            if held:
                learner = await self._load(served, served.head)
                await self._publisher.run_in_thread(_forget_all, learner, [label])
                done: Forgotten = await self._publisher.publish(served, learner, "forgotten", erase, at_once)
            else:
                at_once()
                done = await self._journal.write(erase)
        except BaseException:
            if ordinal is not None:
                served.known.setdefault(label, ordinal)
            raise
        served.open_examples -= done.open_examples
        self._metrics.discarded.inc(len(done.discarded))
        rows = await self._journal.read(_unlearned_episodes, served.id)
        served.episodes = {row.number: row for row in rows}
        for episode in done.discarded:
            served.emit(events.discarded(episode, "forgotten"), episode.stream)
        served.free(done.bytes)
        return done

    async def _load(self, served: ServedLearner, head: tuple[str, bytes] | None) -> Learner:
        if head is None:
            raise RpcError("NOTHING_LEARNED", "there is no version to change")
        path = self._folder.snapshot(served.uid, head[0])
        try:
            learner: Learner = await self._publisher.run_in_thread(
                load_learner, path, head[1], self._config.predictor.device
            )
        except DamagedSnapshot:
            raise RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=head[0]) from None
        return learner

    # ---- restoring ------------------------------------------------------------------------------------------------

    async def restore(self, served: ServedLearner, name: str, with_forgotten: bool = False) -> RestoreReport:
        """Make the learner what it was when a snapshot was taken; classes forgotten since come back if asked for."""
        with served.changing():
            async with self._supervisor.paused(served):
                row: SnapshotRow = await self._journal.read(ledger_learners.snapshot, served.id, name)
                return await self.restore_row(served, row, with_forgotten)

    async def restore_row(self, served: ServedLearner, row: SnapshotRow, with_forgotten: bool = False) -> RestoreReport:
        """The same, for a caller that has paused training."""
        try:
            if row.damaged:
                raise RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=row.name)
            learner = await self._load(served, (row.name, row.sha256))
        except RpcError as refusal:
            if refusal.reason == "SNAPSHOT_DAMAGED" and not row.damaged:
                await self.note_damage(served, row)
            raise
        self.check_fit(served, learner, row.name)
        previous = served.model
        gone = [] if with_forgotten else await self._again_forgotten(served, learner, row)
        learned = await self._journal.read(_learned_in_all, served.id)
        held = [json.dumps(label) for _, label in learner.labels.pairs()] if with_forgotten else []
        await self._publisher.publish(
            served, learner, "restored", lambda connection: ledger_learners.remember(connection, served.id, held)
        )
        model = served.model
        await self._meet(served)
        self._folder.clear_work(served.uid)
        undone = learned - row.learned_before if row.origin != "imported" else learned
        log.info("%s was restored as version %d", served.name, model.version)
        return RestoreReport(model.version, previous.version, max(0, undone), gone)

    async def serve_older(self, served: ServedLearner, learner: Learner, row: SnapshotRow) -> None:
        """At start-up: an older snapshot takes the place of a damaged one."""
        await self._again_forgotten(served, learner, row)
        try:
            await self._publisher.publish(served, learner, "damaged")
        except Exception as error:
            log.error("%s: the older version serves, but could not be written: %s", served.name, error)
            served.model = await self._publisher.run_in_thread(model_of, learner, served.model.version + 1)

    async def _again_forgotten(self, served: ServedLearner, learner: Learner, row: SnapshotRow) -> list[Label]:
        """Take out the classes that were forgotten after a snapshot was made."""
        forgotten: dict[str, int] = await self._journal.read(ledger_learners.forgotten, served.id)
        late = [json.loads(text) for text, newest in forgotten.items() if row.id <= newest]
        gone: list[Label] = await self._publisher.run_in_thread(_forget_all, learner, late)
        return gone

    async def _meet(self, served: ServedLearner) -> None:
        """Classes that a snapshot brought are known from now on."""
        for label in served.model.classes:
            if label not in served.known:
                served.known[label] = served.next_class
                served.next_class += 1
        pairs = [(served.known[label], json.dumps(label)) for label in served.model.classes]
        await self._journal.write(ledger_learners.meet, served.id, pairs, served.next_class)
        served.on_disk.update(ordinal for ordinal, _ in pairs)
        figures = served.model.figures
        if served.input_shape is None and figures.get("input_shape"):
            served.input_shape = tuple(figures["input_shape"])
            served.label_kind = served.label_kind or figures["label_kind"]
            served.settled_on_disk = served.label_kind is not None
            shape = json.dumps(served.input_shape)
            await self._journal.write(ledger_learners.settle, served.id, shape, served.label_kind)

    def check_fit(self, served: ServedLearner, learner: Learner, name: str) -> None:
        """Whether a snapshot is of the learner's input shape and kind of labels."""
        shape = learner.architecture.input_shape if learner.architecture is not None else None
        pairs = (("input shape", served.input_shape, shape), ("kind of labels", served.label_kind, learner.labels.kind))
        for what, expected, found in pairs:
            if expected is not None and found is not None and expected != found:
                message = f"the snapshot has another {what} than the learner"
                raise RpcError("SNAPSHOT_INCOMPATIBLE", message, snapshot=name, expected=expected, found=found)

    async def note_damage(self, served: ServedLearner, row: SnapshotRow) -> None:
        """A stored snapshot was found damaged while the server runs."""
        await self._journal.write(ledger_learners.mark_damaged, row)
        served.damaged += 1
        self._metrics.damages.inc()
        detail = f"snapshot of version {row.version} is damaged"
        serving = served.model.version
        await self._journal.write(ledger_learners.add_damage, served.name, row.name, row.version, serving, detail)
        log.error("%s: %s", served.name, detail)
        served.notify()

    # ---- deleting -------------------------------------------------------------------------------------------------

    async def delete(self, served: ServedLearner) -> tuple[int, int]:
        """Delete a learner with all it has; returns unlearned examples and snapshots that went with it."""
        with served.changing():
            async with self._supervisor.paused(served):
                unlearned = served.open_examples + sum(episode.examples for episode in served.episodes.values())
                snapshots = len(await self._journal.read(ledger_learners.snapshots, served.id))
                await self._journal.write(ledger_learners.delete, served.id)
                self._registry.remove(served)
                for episode in list(served.episodes.values()):
                    served.emit(events.discarded(replace(episode, settled=time.time()), "deleted"), episode.stream)
                served.episodes.clear()
                for session in list(served.sessions.values()):
                    session.fail(RpcError("LEARNER_NOT_FOUND", "the learner was deleted", learner=served.name))
                served.end()
                self._batcher.forget(served)
                await self._publisher.run_in_thread(self._folder.delete_learner, served.uid)
                await self._journal.erase()
                log.info("learner %s was deleted", served.name)
                return unlearned, snapshots


def _forget_all(learner: Learner, labels: list[Label]) -> list[Label]:
    """Forget classes; returns those that memories held. An episode in progress is given up."""
    if learner.running is not None:
        learner.abandon_episode()
    held = {learner.labels.label(memory.class_id) for memory in learner.ltm.classes}
    gone = []
    for label in labels:
        try:
            learner.forget(label)
        except UnknownClassError:
            continue
        if label in held:
            gone.append(label)
    return gone


def _unlearned_episodes(connection: Any, learner: int) -> Any:
    from sharp_server.storage.sqlite.streams import episodes_where

    return episodes_where(connection, "e.learner = ? AND e.state IN ('waiting', 'parked')", learner)


def _learned_in_all(connection: Any, learner: int) -> int:
    return int(
        connection.execute(
            "SELECT count(*) FROM versions WHERE learner = ? AND cause = 'learned'", (learner,)
        ).fetchone()[0]
    )
