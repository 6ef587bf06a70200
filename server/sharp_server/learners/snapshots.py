"""Snapshots on request: create, delete, read out. A file is complete and checked before it gets a record."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.learners.damage import DamageLog
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import new_name, place, sha256_of
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import NewSnapshot, SnapshotRow
from sharp_server.storage.version_files import VersionFiles
from sharp_server.training.consolidation import Consolidation

LONGEST_NOTE = 1024
_CHUNK = 1 << 20


class Snapshots:
    """Keeps, gives out and deletes snapshots."""

    def __init__(
        self,
        limits: LimitsConfig,
        files: VersionFiles,
        storage: Storage,
        damage: DamageLog,
        thread: BackgroundThread,
        consolidation: Consolidation,
    ) -> None:
        self._limits, self._files, self._storage = limits, files, storage
        self._damage, self._thread, self._consolidation = damage, thread, consolidation

    async def create(self, served: ServedLearner, note: str) -> SnapshotRow:
        """Keep the version that serves, with the lessons that can become part of it now."""
        check_note(note, "note")
        await self._consolidation.consolidate(served)
        async with served.files:
            head, model = served.head, served.model
            if head is None or not model.version:
                raise RpcError("NOTHING_LEARNED", "there is no version to save", learner=served.name)
            name = new_name(model.version, "requested")
            source, target = self._files.path(served.uid, head[0]), self._files.path(served.uid, name)
            await self._thread.run_in_thread(self._files.ensure, served.uid, *head)
            size = await self._thread.run_in_thread(_copy, source, target, head[1])
            classes = json.dumps(model.classes)
            new = NewSnapshot(served.id, name, model.version, model.episodes, classes, "requested", size, head[1], note)
            return await self.record(served, new, target)

    async def record(self, served: ServedLearner, new: NewSnapshot, path: Path) -> SnapshotRow:
        """Give a file that is in its place its record, or delete it."""
        try:
            async with self._files.recording(served.uid, path, new.sha256):
                return await self._storage.add_snapshot(new, self._limits.manual_snapshots)
        except BaseException:
            await self._thread.run_in_thread(path.unlink, missing_ok=True)
            raise

    async def list(self, served: ServedLearner) -> list[SnapshotRow]:
        """A learner's snapshots, newest first."""
        return await self._storage.snapshots(served.id)

    async def delete(self, served: ServedLearner, name: str) -> int:
        """Delete a snapshot; returns the bytes that became free."""
        row = await self._storage.snapshot(served.id, name)
        if served.head is not None and served.head[0] == name:
            raise RpcError("SNAPSHOT_IN_USE", "the learner would start from this snapshot", snapshot=name)
        await self._storage.delete_snapshots(served.id, [name])
        await self._files.delete_snapshots(served, [name])
        return row.size

    async def export(self, served: ServedLearner, name: str) -> AsyncIterator[SnapshotRow | bytes]:
        """A snapshot's record, then its bytes. The file is open before the record is given: it may be deleted then."""
        row = await self._chosen(served, name)
        damaged = RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=row.name)
        await self._thread.run_in_thread(self._files.ensure, served.uid, row.name, row.sha256)
        try:
            file = await self._thread.run_in_thread(self._files.path(served.uid, row.name).open, "rb")
        except FileNotFoundError:
            await self._damage.found(served, row)
            raise damaged from None
        with file:
            found = await self._thread.run_in_thread(lambda: hashlib.file_digest(file, "sha256").digest())
            if found != row.sha256:
                await self._damage.found(served, row)
                raise damaged
            file.seek(0)
            yield row
            digest = hashlib.sha256()
            while chunk := await self._thread.run_in_thread(file.read, _CHUNK):
                digest.update(chunk)
                yield chunk
            if digest.digest() != row.sha256:
                raise damaged

    async def _chosen(self, served: ServedLearner, name: str) -> SnapshotRow:
        if name:
            return await self._storage.snapshot(served.id, name)
        for row in await self._storage.snapshots(served.id):
            if not row.damaged:
                return row
        raise RpcError("SNAPSHOT_NOT_FOUND", "the learner has no whole snapshot", learner=served.name)


def check_note(note: str, field: str) -> None:
    """Refuse a note that is too long."""
    if len(note.encode()) > LONGEST_NOTE:
        message = f"a note has at most {LONGEST_NOTE} bytes"
        raise RpcError("FIELD_INVALID", message, fields=(field,), field=field)


def _copy(source: Path, target: Path, sha256: bytes) -> int:
    """Copy a snapshot's file, if it is what was written; returns its size."""
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        shutil.copyfile(source, temporary)
        if sha256_of(temporary) != sha256:
            raise RpcError("SNAPSHOT_DAMAGED", "the serving version is damaged on disk", snapshot=source.stem)
        place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target.stat().st_size
