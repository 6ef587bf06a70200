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
from sharp_server import events, ledger_episodes, ledger_learners
from sharp_server.batcher import Batcher
from sharp_server.config import ServerConfig
from sharp_server.errors import Refusal
from sharp_server.folders import DataFolder
from sharp_server.identity import identity_of, write_identity
from sharp_server.journal import Journal
from sharp_server.ledger_episodes import Forgotten
from sharp_server.ledger_learners import SnapshotRow
from sharp_server.metrics import Metrics
from sharp_server.models import DamagedSnapshot, load_learner, model_of
from sharp_server.publishing import Publisher
from sharp_server.registry import Owned, Registry
from sharp_server.supervisor import Supervisor

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
        supervisor: Supervisor,
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._config, self._folder, self._journal, self._registry = config, folder, journal, registry
        self._publisher, self._supervisor, self._batcher, self._metrics = publisher, supervisor, batcher, metrics

    # ---- forgetting -----------------------------------------------------------------------------------------------

    async def forget(self, owned: Owned, label: Label, delete_older: bool) -> ForgetReport:
        """Take a class out of everything that could bring it up."""
        with owned.changing():
            async with self._supervisor.paused(owned), owned.files:
                text = json.dumps(label)
                before = await self._journal.read(ledger_learners.forgotten, owned.id)
                held = {entry[0]: entry for entry in owned.model.figures.get("classes", ())}
                if label not in owned.known and text not in before and label not in held:
                    message = f"the learner has never met the class {str(label)[:80]!r}"
                    raise Refusal("CLASS_NOT_FOUND", message, label=label, fields=("label",))
                ltm = stm = 0
                journal = Forgotten(0, 0, 0, ())
                if label in held:
                    _, ltm, stm, _ = held[label]
                if label in owned.known or label in held:
                    journal = await self._forget(owned, label, text, label in held)
                self._folder.clear_work(owned.uid)
                known = await self._journal.read(identity_of, owned.id)
                await self._publisher.off_loop(write_identity, self._folder.of_learner(owned.uid), known)
                newest = (await self._journal.read(ledger_learners.forgotten, owned.id)).get(text, 0)
                rows: list[SnapshotRow] = await self._journal.read(ledger_learners.snapshots, owned.id)
                holding = [row for row in rows if row.id <= newest and label in json.loads(row.classes)]
                deleted: list[SnapshotRow] = []
                if delete_older and holding:
                    names = [row.name for row in holding]
                    await self._journal.write(ledger_learners.delete_snapshots, owned.id, names)
                    self._folder.delete_snapshots(owned.uid, names)
                    holding, deleted = [], holding
                await self._leave_nothing(owned, {row.name for row in rows} - {row.name for row in deleted})
                log.info("%s forgot a class: %d examples left the journal", owned.name, journal.examples)
                return ForgetReport(owned.model.version, ltm, stm, journal, holding, deleted)

    async def _leave_nothing(self, owned: Owned, kept: set[str]) -> None:
        """Delete what else may hold examples: files that a crash left, journals set aside, the write-ahead log."""
        swept = self._folder.sweep_learner(owned.uid, kept) + self._folder.delete_set_aside()
        if swept:
            log.warning("%d files left behind or set aside were deleted, for they may hold the class", swept)
        deadline = time.monotonic() + _SECONDS_TO_ERASE
        while not await self._journal.erase():
            if time.monotonic() > deadline:
                message = "the class is forgotten, but its examples can't be erased while the journal is being read"
                raise Refusal("LEARNER_BUSY", message, retry=1.0)

    async def _forget(self, owned: Owned, label: Label, text: str, held: bool) -> Forgotten:
        """Out of the memories and out of the journal in one transaction."""
        ordinal = owned.known.get(label)

        def at_once() -> None:
            # In the very moment in which the transaction is queued: batches after it bring a new class.
            owned.known.pop(label, None)
            owned.epoch += 1

        def erase(connection: sqlite3.Connection) -> Forgotten:
            return ledger_episodes.forget(connection, owned.id, text)

        try:
            if held:
                learner = await self._load(owned, owned.head)
                await self._publisher.off_loop(_forget_all, learner, [label])
                done: Forgotten = await self._publisher.publish(owned, learner, "forgotten", erase, at_once)
            else:
                at_once()
                done = await self._journal.write(erase)
        except BaseException:
            if ordinal is not None:
                owned.known.setdefault(label, ordinal)
            raise
        owned.open_examples -= done.open_examples
        self._metrics.discarded.inc(len(done.discarded))
        rows = await self._journal.read(_unlearned_episodes, owned.id)
        owned.episodes = {row.number: row for row in rows}
        for episode in done.discarded:
            owned.emit(events.discarded(episode, "forgotten"), episode.stream)
        owned.free(done.bytes)
        return done

    async def _load(self, owned: Owned, head: tuple[str, bytes] | None) -> Learner:
        if head is None:
            raise Refusal("NOTHING_LEARNED", "there is no version to change")
        path = self._folder.snapshot(owned.uid, head[0])
        try:
            learner: Learner = await self._publisher.off_loop(
                load_learner, path, head[1], self._config.predictor.device
            )
        except DamagedSnapshot:
            raise Refusal("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=head[0]) from None
        return learner

    # ---- restoring ------------------------------------------------------------------------------------------------

    async def restore(self, owned: Owned, name: str, with_forgotten: bool = False) -> RestoreReport:
        """Make the learner what it was when a snapshot was taken; classes forgotten since come back if asked for."""
        with owned.changing():
            async with self._supervisor.paused(owned):
                row: SnapshotRow = await self._journal.read(ledger_learners.snapshot, owned.id, name)
                return await self.restore_row(owned, row, with_forgotten)

    async def restore_row(self, owned: Owned, row: SnapshotRow, with_forgotten: bool = False) -> RestoreReport:
        """The same, for a caller that has paused training."""
        try:
            if row.damaged:
                raise Refusal("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=row.name)
            learner = await self._load(owned, (row.name, row.sha256))
        except Refusal as refusal:
            if refusal.reason == "SNAPSHOT_DAMAGED" and not row.damaged:
                await self.note_damage(owned, row)
            raise
        self.check_fit(owned, learner, row.name)
        previous = owned.model
        gone = [] if with_forgotten else await self._again_forgotten(owned, learner, row)
        learned = await self._journal.read(_learned_in_all, owned.id)
        held = [json.dumps(label) for _, label in learner.labels.pairs()] if with_forgotten else []
        await self._publisher.publish(
            owned, learner, "restored", lambda connection: ledger_learners.remember(connection, owned.id, held)
        )
        model = owned.model
        await self._meet(owned)
        self._folder.clear_work(owned.uid)
        undone = learned - row.learned_before if row.origin != "imported" else learned
        log.info("%s was restored as version %d", owned.name, model.version)
        return RestoreReport(model.version, previous.version, max(0, undone), gone)

    async def serve_older(self, owned: Owned, learner: Learner, row: SnapshotRow) -> None:
        """At start-up: an older snapshot takes the place of a damaged one."""
        await self._again_forgotten(owned, learner, row)
        try:
            await self._publisher.publish(owned, learner, "damaged")
        except Exception as error:
            log.error("%s: the older version serves, but could not be written: %s", owned.name, error)
            owned.model = await self._publisher.off_loop(model_of, learner, owned.model.version + 1)

    async def _again_forgotten(self, owned: Owned, learner: Learner, row: SnapshotRow) -> list[Label]:
        """Take out the classes that were forgotten after a snapshot was made."""
        forgotten: dict[str, int] = await self._journal.read(ledger_learners.forgotten, owned.id)
        late = [json.loads(text) for text, newest in forgotten.items() if row.id <= newest]
        gone: list[Label] = await self._publisher.off_loop(_forget_all, learner, late)
        return gone

    async def _meet(self, owned: Owned) -> None:
        """Classes that a snapshot brought are known from now on."""
        for label in owned.model.classes:
            if label not in owned.known:
                owned.known[label] = owned.next_class
                owned.next_class += 1
        pairs = [(owned.known[label], json.dumps(label)) for label in owned.model.classes]
        await self._journal.write(ledger_learners.meet, owned.id, pairs, owned.next_class)
        owned.on_disk.update(ordinal for ordinal, _ in pairs)
        figures = owned.model.figures
        if owned.input_shape is None and figures.get("input_shape"):
            owned.input_shape = tuple(figures["input_shape"])
            owned.label_kind = owned.label_kind or figures["label_kind"]
            owned.settled_on_disk = owned.label_kind is not None
            shape = json.dumps(owned.input_shape)
            await self._journal.write(ledger_learners.settle, owned.id, shape, owned.label_kind)

    def check_fit(self, owned: Owned, learner: Learner, name: str) -> None:
        """Whether a snapshot is of the learner's input shape and kind of labels."""
        shape = learner.architecture.input_shape if learner.architecture is not None else None
        pairs = (("input shape", owned.input_shape, shape), ("kind of labels", owned.label_kind, learner.labels.kind))
        for what, expected, found in pairs:
            if expected is not None and found is not None and expected != found:
                message = f"the snapshot has another {what} than the learner"
                raise Refusal("SNAPSHOT_INCOMPATIBLE", message, snapshot=name, expected=expected, found=found)

    async def note_damage(self, owned: Owned, row: SnapshotRow) -> None:
        """A stored snapshot was found damaged while the server runs."""
        await self._journal.write(ledger_learners.mark_damaged, row)
        owned.damaged += 1
        self._metrics.damages.inc()
        detail = f"snapshot of version {row.version} is damaged"
        serving = owned.model.version
        await self._journal.write(ledger_learners.add_damage, owned.name, row.name, row.version, serving, detail)
        log.error("%s: %s", owned.name, detail)
        owned.tell()

    # ---- deleting -------------------------------------------------------------------------------------------------

    async def delete(self, owned: Owned) -> tuple[int, int]:
        """Delete a learner with all it has; returns unlearned examples and snapshots that went with it."""
        with owned.changing():
            async with self._supervisor.paused(owned):
                unlearned = owned.open_examples + sum(episode.examples for episode in owned.episodes.values())
                snapshots = len(await self._journal.read(ledger_learners.snapshots, owned.id))
                await self._journal.write(ledger_learners.delete, owned.id)
                self._registry.remove(owned)
                for episode in list(owned.episodes.values()):
                    owned.emit(events.discarded(replace(episode, settled=time.time()), "deleted"), episode.stream)
                owned.episodes.clear()
                for session in list(owned.sessions.values()):
                    session.fail(Refusal("LEARNER_NOT_FOUND", "the learner was deleted", learner=owned.name))
                owned.end()
                self._batcher.forget(owned)
                await self._publisher.off_loop(self._folder.delete_learner, owned.uid)
                await self._journal.erase()
                log.info("learner %s was deleted", owned.name)
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
    from sharp_server.ledger_ingest import episodes_where

    return episodes_where(connection, "e.learner = ? AND e.state IN ('waiting', 'parked')", learner)


def _learned_in_all(connection: Any, learner: int) -> int:
    return int(
        connection.execute(
            "SELECT count(*) FROM versions WHERE learner = ? AND cause = 'learned'", (learner,)
        ).fetchone()[0]
    )
