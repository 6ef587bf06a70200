"""Restoring a snapshot: the learner becomes what it was, under a new version.

What was forgotten since stays forgotten, unless the operator asks for it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace

from sharp_engine import Label, Learner
from sharp_server.errors import RpcError
from sharp_server.learners.damage import DamageLog
from sharp_server.learners.forgetting import Forgetting
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.model import model_of
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import NewVersion, Published, SnapshotRow
from sharp_server.storage.version_files import VersionFiles
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestoreReport:
    """What restoring a snapshot came to."""

    version: int
    previous: int
    undone: int
    forgotten: list[Label]


class Restoring:
    """Puts snapshots in the place of what serves."""

    def __init__(
        self,
        files: VersionFiles,
        storage: Storage,
        publisher: Publisher,
        scheduler: Scheduler,
        forgetting: Forgetting,
        damage: DamageLog,
        thread: BackgroundThread,
    ) -> None:
        self._files, self._storage, self._publisher, self._scheduler = files, storage, publisher, scheduler
        self._forgetting, self._damage, self._thread = forgetting, damage, thread

    async def restore(self, served: ServedLearner, name: str, with_forgotten: bool = False) -> RestoreReport:
        """Make the learner what it was when a snapshot was taken; classes forgotten since come back if asked for."""
        with served.change():
            row = await self._storage.snapshot(served.id, name)
            return await self.restore_row(served, row, with_forgotten)

    async def restore_row(
        self, served: ServedLearner, row: SnapshotRow, with_forgotten: bool = False, holds: int | None = None
    ) -> RestoreReport:
        """The same, for a caller that keeps other changes away; `holds`: the version that undoing goes back to."""
        async with self._scheduler.paused(served):
            learner = await self._load(served, row)
            check_fit(served, learner, row.name)
            previous = served.model.version
            gone = [] if with_forgotten else await self._forgetting.forget_again(served, learner, row)
            learned = await self._storage.episodes_learned(served.id)
            back = [json.dumps(label) for _, label in learner.labels.pairs()] if with_forgotten else []

            async def record(version: NewVersion) -> Published:
                return await self._storage.publish(replace(version, holds=holds), remember=back)

            cause = "restored" if holds is None else "undone"
            await self._publisher.publish_changed(served, learner, cause, record)
            await self._adopt_classes(served)
            await self._files.clear_work(served)
            undone = learned - row.learned_before if row.origin != "imported" else learned
            log.info("%s was restored as version %d", served.name, served.model.version)
            return RestoreReport(served.model.version, previous, max(0, undone), gone)

    async def _load(self, served: ServedLearner, row: SnapshotRow) -> Learner:
        if row.damaged:
            raise RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=row.name)
        try:
            return await self._forgetting.load(served, row.name, row.sha256)
        except RpcError as refusal:
            if refusal.reason == "SNAPSHOT_DAMAGED":
                await self._damage.found(served, row)
            raise

    async def serve_older(self, served: ServedLearner, learner: Learner, row: SnapshotRow) -> None:
        """At start-up: an older snapshot takes the place of a damaged one."""
        await self._forgetting.forget_again(served, learner, row)

        async def record(version: NewVersion) -> Published:
            return await self._storage.publish(version)

        try:
            await self._publisher.publish_changed(served, learner, "damaged", record)
        except Exception as error:
            log.error("%s: the older version serves, but could not be written: %s", served.name, error)
            model = await self._thread.run_in_thread(model_of, learner, served.model.version + 1)
            served.serve(model, None)

    async def _adopt_classes(self, served: ServedLearner) -> None:
        """Classes that a snapshot brought are known from now on."""
        pairs = served.classes.adopt(served.model.classes)
        await self._storage.add_classes(served.id, pairs, served.classes.next_ordinal)
        served.classes.made_durable(ordinal for ordinal, _ in pairs)
        summary = served.model.summary
        if served.input_shape is None and summary is not None and summary.input_shape:
            served.fix_inputs(summary.input_shape, summary.label_kind)
            await self._storage.fix_inputs(served.id, json.dumps(summary.input_shape), served.label_kind)
            served.inputs_are_durable()


def check_fit(served: ServedLearner, learner: Learner, name: str) -> None:
    """Whether a snapshot is of the learner's input shape and kind of labels."""
    shape = learner.architecture.input_shape if learner.architecture is not None else None
    pairs = (("input shape", served.input_shape, shape), ("kind of labels", served.label_kind, learner.labels.kind))
    for what, expected, found in pairs:
        if expected is not None and found is not None and expected != found:
            message = f"the snapshot has another {what} than the learner"
            raise RpcError("SNAPSHOT_INCOMPATIBLE", message, snapshot=name, expected=expected, found=found)
