"""Taking up everything that is in the data folder.

Start-up trusts nothing on disk: the newest snapshot that is sound serves, and whatever was lost is logged, counted and
shown in the status.
"""

from __future__ import annotations

import functools
import logging
import time
from dataclasses import replace

from sharp_engine import Learner, SharpError, SnapshotVersionError
from sharp_server.config.model import ServerConfig
from sharp_server.errors import redact
from sharp_server.learners.damage import DamageLog
from sharp_server.learners.registry import Registry
from sharp_server.learners.restoring import Restoring
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import stored_label_kind
from sharp_server.prediction.model import Model, load_learner, model_of
from sharp_server.prediction.quality import MeasuredVersion, QualityReport, compare, from_json
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage import recovery
from sharp_server.storage.data_folder import QUARANTINE_PREFIX, DataFolder
from sharp_server.storage.interface import Storage, UnsupportedFormatError
from sharp_server.storage.manifest import manifest_of, write_manifest
from sharp_server.storage.records import FoundLearner, LearnerRow, SnapshotRow
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.teaching import Teaching
from sharp_server.training.publisher import Publisher

log = logging.getLogger(__name__)


class StartUp:
    """Fills the registry, once."""

    def __init__(
        self,
        config: ServerConfig,
        folder: DataFolder,
        files: VersionFiles,
        storage: Storage,
        registry: Registry,
        publisher: Publisher,
        restoring: Restoring,
        damage: DamageLog,
        thread: BackgroundThread,
        teaching: Teaching,
    ) -> None:
        self._config, self._folder, self._files, self._storage = config, folder, files, storage
        self._registry, self._publisher, self._restoring, self._damage = registry, publisher, restoring, damage
        self._thread, self._teaching = thread, teaching

    async def load(self, take_up: bool = True) -> None:
        """Take up everything, and leave what a crash left behind.

        In a cluster nothing is taken up yet: whoever owns a learner says so, and `take_up` follows.
        """
        await self._open_journal(recover=take_up)
        rows = await self._storage.learners()
        kept = {row.uid: {snapshot.name for snapshot in await self._storage.snapshots(row.id)} for row in rows}
        swept = await self._thread.run_in_thread(self._folder.sweep, kept, self._files.remote)
        if swept:
            log.info("%d files that a crash left behind were deleted", swept)
        for row in rows if take_up else ():
            try:
                self._registry.add(await self.take_up(row))
            except (ValueError, KeyError, TypeError, SharpError) as error:
                detail = f"its record in the journal is damaged: {redact(error)}"
                await self._damage.note(row.name, "", row.version, 0, detail)
        await self._publisher.erase_if_possible()

    async def _open_journal(self, recover: bool) -> None:
        opening = await self._storage.open()
        if opening.begun_anew and recover:
            await self._recover(opening.begun_anew, opening.set_aside)
        for loss in opening.losses:
            await self._damage.note("", "", 0, 0, loss)

    async def _recover(self, why: str, set_aside: bool) -> None:
        """The journal is new: whoever has snapshots comes back as they hold it."""
        found, unknown = await self._thread.run_in_thread(self._find)
        if not found and not unknown and not set_aside:
            return  # a new server
        await self._storage.enter(found)
        detail = f"{why}; {len(found)} learners came back from their snapshots, what was not learned yet is lost"
        await self._damage.note("", "", 0, 0, detail)

    def _find(self) -> tuple[list[FoundLearner], int]:
        found, unknown_folders = recovery.find(self._folder, stored_label_kind)
        for folder in unknown_folders:
            folder.rename(self._folder.path / f"{QUARANTINE_PREFIX}{int(time.time())}-{folder.name}")
        for learner in found:
            self._folder.clear_work(learner.uid)
        return found, len(unknown_folders)

    async def _prepare_folder(self, row: LearnerRow) -> None:
        manifest = await manifest_of(self._storage, row)

        def prepare() -> None:
            self._folder.make_learner(row.uid)
            write_manifest(self._folder.of_learner(row.uid), manifest)

        await self._thread.run_in_thread(prepare)

    async def take_up(self, row: LearnerRow) -> ServedLearner:
        """One learner, ready to serve; the caller lets it be known."""
        await self._prepare_folder(row)
        served = ServedLearner(row)
        await self._files.know(served)
        served.reload_classes(await self._storage.classes(row.id))
        nbytes, open_examples = await self._storage.unlearned_totals(row.id)
        served.backlog.load(await self._storage.unlearned_episodes(row.id), nbytes, open_examples)
        if not served.backlog.waiting():  # what a crash left of an episode that is learned or undone
            await self._thread.run_in_thread(self._folder.clear_work, row.uid)
        if row.version:
            await self._take_up_model(served, row)
        await self._teaching.load(served)
        return served

    async def _take_up_model(self, served: ServedLearner, row: LearnerRow) -> None:
        """Serve the newest sound snapshot; one that is older than the newest is served under a new number."""
        lost: list[tuple[SnapshotRow, str]] = []
        for snapshot in await self._in_order(row):
            try:
                learner = await self._files.until_reached(functools.partial(self._load, served, snapshot))
            except SnapshotVersionError as error:
                raise UnsupportedFormatError(f"{served.name}: {error}") from None
            except (SharpError, OSError) as error:
                lost.append((snapshot, redact(error)))
                await self._damage.mark(served, snapshot)
                continue
            model = await self._thread.run_in_thread(model_of, learner, row.version)
            model = replace(model, quality=await self._quality(row))
            served.serve(model, (snapshot.name, snapshot.sha256))
            if snapshot.id != row.head:
                await self._restoring.serve_older(served, learner, snapshot)
            break
        else:
            log.error("%s: no snapshot is sound; nothing serves", served.name)
            served.serve(Model(version=row.version), None)
        for snapshot, why in lost:
            detail = f"snapshot of version {snapshot.version} is damaged: {why}"
            await self._damage.note(served.name, snapshot.name, snapshot.version, served.model.version, detail)

    async def _load(self, served: ServedLearner, snapshot: SnapshotRow) -> Learner:
        facts = (served.uid, snapshot.name, snapshot.sha256, self._config.predictor.device)
        return await self._thread.run_in_thread(load_learner, self._files, *facts)

    async def _quality(self, row: LearnerRow) -> QualityReport:
        """How good the newest version is, as it was written down with it."""
        measured = {
            kept.version: MeasuredVersion(kept.version, kept.created, from_json(kept.quality))
            for kept in (await self._storage.qualities(row.id))[:2]
        }
        before = measured.get(row.version - 1)
        return compare(measured.get(row.version), before, self._config.quality.fall_points)

    async def _in_order(self, row: LearnerRow) -> list[SnapshotRow]:
        """The head first, then whatever this learner itself has been, newest first; what was imported comes last."""
        snapshots = [snapshot for snapshot in await self._storage.snapshots(row.id) if not snapshot.damaged]
        return sorted(snapshots, key=lambda s: (s.id != row.head, s.origin == "imported", -s.version, -s.id))
