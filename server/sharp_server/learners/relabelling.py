"""Another name for a class, or one class of two: in the memories and in the journal, in one transaction.

It is carried through or changes nothing. Snapshots made before keep the old names; restoring one brings them back. The
journal remembers what a class was called, so that forgetting it reaches those snapshots too.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from sharp_engine import Label, Learner
from sharp_server.errors import RpcError
from sharp_server.learners.forgetting import Forgetting
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import NewVersion, Published, Relabelling, SnapshotRow
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.publisher import Publisher
from sharp_server.training.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RelabelReport:
    """What it came to."""

    version: int
    examples: int
    """That the version has learned of the class as it is called now."""
    journal_examples: int
    holding: list[SnapshotRow]


class ClassRelabelling:
    """Renames and merges classes, one at a time."""

    def __init__(
        self,
        files: VersionFiles,
        storage: Storage,
        publisher: Publisher,
        scheduler: Scheduler,
        forgetting: Forgetting,
        thread: BackgroundThread,
        teaching: Teaching,
    ) -> None:
        self._files, self._storage, self._publisher, self._scheduler = files, storage, publisher, scheduler
        self._forgetting, self._thread, self._teaching = forgetting, thread, teaching

    async def rename(self, served: ServedLearner, old: Label, new: Label) -> RelabelReport:
        """Give a class another name."""
        with served.change():
            _require_known(served, old, "label")
            if new in served.classes:
                message = f"there is a class {str(new)[:80]!r} already: merging makes one of two"
                raise RpcError("CLASS_EXISTS", message, label=new, fields=("new_label",))
            report = await self._relabel(served, old, new, merge=False)
            log.info("%s: a class was renamed", served.name)
            return report

    async def merge(self, served: ServedLearner, source: Label, target: Label) -> RelabelReport:
        """Make one class of two."""
        with served.change():
            _require_known(served, source, "source")
            _require_known(served, target, "target")
            if source == target:
                raise RpcError(
                    "FIELD_INVALID", "a class can't be merged with itself", fields=("target",), field="target"
                )
            report = await self._relabel(served, source, target, merge=True)
            log.info("%s: two classes were merged", served.name)
            return report

    async def _relabel(self, served: ServedLearner, old: Label, new: Label, merge: bool) -> RelabelReport:
        async with self._scheduler.paused(served), served.files:
            change = Relabelling(served.id, json.dumps(old), json.dumps(new), merge)
            if old in served.model.classes:
                learner = await self._forgetting.load_head(served)
                await self._thread.run_in_thread(_relabel_in, learner, old, new, merge)
                changed = await self._publish(served, learner, change, old, new)
            else:
                changed = await self._relabel_beyond(served, change, old, new)
            await self._files.clear_work(served)
            await self._forgetting.write_manifest(served)
            served.backlog.relabelled(await self._storage.unlearned_episodes(served.id))
            served.notify()
            return await self._report(served, old, new, changed)

    async def _relabel_beyond(self, served: ServedLearner, change: Relabelling, old: Label, new: Label) -> int:
        """The version does not have the class: only what is not part of it yet does."""
        async with self._teaching.held(served):
            queued = self._storage.relabel(change)
            served.relabel_class(old, new, change.merge)
            try:
                changed = await queued
            except BaseException:
                await self._reload_classes(served)
                raise
            await self._teaching.serve_again(served)
            return changed

    async def _publish(
        self, served: ServedLearner, learner: Learner, change: Relabelling, old: Label, new: Label
    ) -> int:
        queued = False

        async def record(version: NewVersion) -> Published:
            nonlocal queued
            waiting = self._storage.publish(version, relabel=change)
            # In the very moment in which the transaction is queued: batches after it go by the new names.
            served.relabel_class(old, new, change.merge)
            queued = True
            return await waiting

        try:
            cause = "merged" if change.merge else "renamed"
            return (await self._publisher.publish_changed(served, learner, cause, record)).relabelled
        except BaseException:
            if queued:
                await self._reload_classes(served)
            raise

    async def _reload_classes(self, served: ServedLearner) -> None:
        """It did not come about: what the journal says counts."""
        served.reload_classes(await self._storage.classes(served.id))

    async def _report(self, served: ServedLearner, old: Label, new: Label, changed: int) -> RelabelReport:
        newest = (await self._storage.older_names(served.id, json.dumps(new))).get(json.dumps(old), 0)
        rows = await self._storage.snapshots(served.id)
        holding = [row for row in rows if row.id <= newest and old in json.loads(row.classes)]
        summary = served.model.summary
        learned = {entry.label: entry.examples for entry in summary.classes} if summary is not None else {}
        return RelabelReport(served.model.version, learned.get(new, 0), changed, holding)


def _require_known(served: ServedLearner, label: Label, field: str) -> None:
    if label not in served.classes:
        message = f"the learner does not know the class {str(label)[:80]!r}"
        raise RpcError("CLASS_NOT_FOUND", message, label=label, fields=(field,))


def _relabel_in(learner: Learner, old: Label, new: Label, merge: bool) -> None:
    """In the memories; an episode in progress is given up."""
    if learner.running is not None:
        learner.abandon_episode()
    if merge and new in learner.inspect().classes:
        learner.merge_classes(old, new)
    else:  # the target was never learned: the source's memories are its first
        learner.rename_class(old, new)
