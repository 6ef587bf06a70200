"""Snapshots on request: create, delete, read out, take in. A file is complete and checked before it gets a row.

What is taken in may come from anyone: its size, checksum, header and configuration are looked at before the engine
builds anything from it, and every file gets a name of ours.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from sharp.v1 import learner_pb2
from sharp.v1 import snapshot_pb2 as pb
from sharp_engine import Learner, SharpError, SnapshotError, SnapshotVersionError
from sharp_engine.config import from_dict, to_dict
from sharp_server.context import ServerContext
from sharp_server.errors import RpcError, short
from sharp_server.learners.names import learner_name
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import without_paths
from sharp_server.storage.data_folder import new_name, place, sha256_of
from sharp_server.storage.sqlite import learners as ledger_learners
from sharp_server.storage.sqlite.learners import NewSnapshot, SnapshotRow

log = logging.getLogger(__name__)

LONGEST_NOTE = 1024
_CHUNK = 1 << 20
_LARGEST_HEADER = 16 << 20


class Snapshots:
    """Keeps, gives out and takes in snapshots."""

    def __init__(self, front: ServerContext) -> None:
        self._front = front

    async def create(self, served: ServedLearner, note: str) -> SnapshotRow:
        """Keep the version that serves."""
        _check_note(note, "note")
        async with served.files:
            return await self._copy_head(served, note)

    async def _copy_head(self, served: ServedLearner, note: str) -> SnapshotRow:
        front = self._front
        head, model = served.head, served.model
        if head is None or not model.version:
            raise RpcError("NOTHING_LEARNED", "there is no version to save", learner=served.name)
        name = new_name(model.version, "requested")
        source, target = front.folder.snapshot(served.uid, head[0]), front.folder.snapshot(served.uid, name)

        def copy() -> tuple[int, bytes]:
            temporary = target.with_name(f".{target.name}.tmp")
            try:
                shutil.copyfile(source, temporary)
                digest = sha256_of(temporary)
                if digest != head[1]:
                    raise RpcError("SNAPSHOT_DAMAGED", "the serving version is damaged on disk", snapshot=head[0])
                place(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            return target.stat().st_size, digest

        size, digest = await front.publisher.run_in_thread(copy)
        classes = json.dumps(model.classes)
        new = NewSnapshot(served.id, name, model.version, model.episodes, classes, "requested", size, digest, note)
        return await self._record(served, new, target)

    async def _record(self, served: ServedLearner, new: NewSnapshot, path: Path) -> SnapshotRow:
        limit = self._front.config.limits.manual_snapshots
        try:
            row: SnapshotRow = await self._front.journal.write(ledger_learners.add_snapshot, new, limit)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return row

    async def delete(self, served: ServedLearner, name: str) -> int:
        """Delete a snapshot; returns the bytes that became free."""
        front = self._front
        row: SnapshotRow = await front.journal.read(ledger_learners.snapshot, served.id, name)
        if served.head is not None and served.head[0] == name:
            raise RpcError("SNAPSHOT_IN_USE", "the learner would start from this snapshot", snapshot=name)
        await front.journal.write(ledger_learners.delete_snapshots, served.id, [name])
        await front.publisher.run_in_thread(front.folder.delete_snapshots, served.uid, [name])
        return row.size

    async def export(self, served: ServedLearner, name: str) -> AsyncIterator[SnapshotRow | bytes]:
        """A snapshot's row, then its bytes. The file is open before the row is given: deleted, it is still read."""
        front = self._front
        if name:
            rows = [await front.journal.read(ledger_learners.snapshot, served.id, name)]
        else:
            rows = [r for r in await front.journal.read(ledger_learners.snapshots, served.id) if not r.damaged]
        if not rows:
            raise RpcError("SNAPSHOT_NOT_FOUND", "the learner has no whole snapshot", learner=served.name)
        row: SnapshotRow = rows[0]
        path = front.folder.snapshot(served.uid, row.name)
        damaged = RpcError("SNAPSHOT_DAMAGED", "the snapshot is damaged on disk", snapshot=row.name)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            await front.changes.note_damage(served, row)
            raise damaged from None
        with file:
            found = await front.publisher.run_in_thread(lambda: hashlib.file_digest(file, "sha256").digest())
            if found != row.sha256:
                await front.changes.note_damage(served, row)
                raise damaged
            file.seek(0)
            yield row
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                yield chunk
            if digest.digest() != row.sha256:
                raise damaged

    # ---- taking in --------------------------------------------------------------------------------------------------

    async def take_in(
        self, header: pb.ImportHeader, chunks: Callable[[], Awaitable[bytes | None]]
    ) -> pb.ImportSnapshotResponse:
        """Take in the file of a snapshot: arrival, checks, then one change of the learner."""
        front = self._front
        limits = front.config.limits
        learner_name(header.learner, "header.learner")
        _check_note(header.note, "header.note")
        if header.sha256 and len(header.sha256) != 32:
            raise _invalid("header.sha256", "a SHA-256 has 32 bytes")
        if not header.size_bytes:
            raise _invalid("header.size_bytes", "the size of the file is required")
        if header.size_bytes > limits.snapshot_bytes:
            message = f"the file has {header.size_bytes} bytes, more than {limits.snapshot_bytes}"
            raise RpcError("SNAPSHOT_TOO_LARGE", message, bytes=header.size_bytes, limit=limits.snapshot_bytes)
        arrival = front.folder.work / f".import-{os.urandom(8).hex()}.tmp"
        try:
            digest = await self._receive(header, chunks, arrival)
            learner = await front.publisher.run_in_thread(self._checked, arrival)
            return await front.finish(self._adopt(header, arrival, digest, learner))
        finally:
            arrival.unlink(missing_ok=True)

    async def _receive(
        self, header: pb.ImportHeader, chunks: Callable[[], Awaitable[bytes | None]], arrival: Path
    ) -> bytes:
        digest, size = hashlib.sha256(), 0
        with arrival.open("wb") as file:
            while (chunk := await chunks()) is not None:
                size += len(chunk)
                if size > header.size_bytes:
                    raise _malformed("more bytes came than were announced")
                digest.update(chunk)
                await self._front.publisher.run_in_thread(file.write, chunk)
        if size != header.size_bytes:
            raise _malformed(f"{size} bytes came, {header.size_bytes} were announced")
        if header.sha256 and digest.digest() != header.sha256:
            raise RpcError(
                "CHECKSUM_MISMATCH",
                "the bytes that arrived are not those that were announced",
                expected=header.sha256.hex(),
                found=digest.hexdigest(),
            )
        return digest.digest()

    def _checked(self, path: Path) -> Learner:
        """The learner in a stranger's file, or the refusal."""
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if length > min(_LARGEST_HEADER, path.stat().st_size):
            raise _malformed("its header is longer than it may be")
        try:
            self._look_inside(path)
            learner = Learner.load(path, device=self._front.config.predictor.device)
        except SnapshotVersionError as error:
            raise RpcError("SNAPSHOT_FORMAT_UNSUPPORTED", "the snapshot is of another format", format=error) from None
        except (SharpError, SafetensorError, OSError, ValueError, MemoryError, RecursionError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise
            raise _malformed(_without_names(error, path)) from None
        if learner.running is not None:
            learner.abandon_episode()
        if learner.pending:
            raise _malformed("it holds raw examples")
        classes = len(learner.labels.pairs())
        if classes > self._front.config.limits.classes:
            limit = self._front.config.limits.classes
            raise RpcError("TOO_MANY_CLASSES", f"the snapshot has {classes} classes", limit=limit)
        return learner

    def _look_inside(self, path: Path) -> None:
        """What the engine can't know: which files it may name here, and how large examples may be."""
        with safe_open(path, framework="np") as file:
            entry = json.loads((file.metadata() or {}).get("learner", "{}"))
            carried = any(name.startswith("backbone.") for name in file.keys())  # noqa: SIM118 (not a dict)
        if not isinstance(entry, dict):
            return  # the engine says what is wrong with it
        backbone = from_dict(entry.get("config")).architecture.backbone  # type: ignore[arg-type] # whatever it is
        if backbone is not None and not (carried and backbone.in_snapshots):
            self._check_file(backbone.weights)
        sides = entry.get("input_shape")
        if isinstance(sides, list) and all(isinstance(side, int) for side in sides):
            if math.prod(sides) > self._front.config.limits.example_values * 4:
                raise _malformed("its examples are larger than this server takes")

    def _check_file(self, name: str | None) -> None:
        if name is None:
            return
        folder = self._front.config.data.weights_folder
        # A name alone is one of torchvision's: were it a file, it would be read from wherever the server was started.
        known = re.fullmatch(r"[A-Za-z0-9_]+", name) and not Path(name).exists()
        if not known and not (folder and Path(name).parent == Path(folder).absolute() and ".." not in name):
            message = "the snapshot needs a file of weights that this server does not have"
            raise RpcError("SNAPSHOT_INCOMPATIBLE", message, expected="weights of this server", found="other weights")

    async def _adopt(
        self, header: pb.ImportHeader, arrival: Path, digest: bytes, learner: Learner
    ) -> pb.ImportSnapshotResponse:
        front = self._front
        served, created = front.registry.find(header.learner), False
        if served is None:
            config = learner_pb2.LearnerConfig(preset="default", seed=learner.config.seed)
            shape = learner.architecture.input_shape if learner.architecture is not None else None
            served = await front.creation.create_row(
                header.learner,
                config.SerializeToString(),
                json.dumps({**to_dict(without_paths(learner.config)), "device": "cpu"}),
                json.dumps(shape) if shape is not None else None,
                learner.labels.kind,
            )
            created = True
        try:
            with served.changing():
                front.changes.check_fit(served, learner, "")
                row = await self._keep(served, header, arrival, digest, learner)
                version = 0
                if created or header.restore:
                    async with front.scheduler.paused(served):
                        version = (await front.changes.restore_row(served, row)).version
        except BaseException:
            if created:
                await front.changes.delete(served)
            raise
        return pb.ImportSnapshotResponse(
            snapshot=snapshot_message(row, served.name), model_version=version, created=created
        )

    async def _keep(
        self, served: ServedLearner, header: pb.ImportHeader, arrival: Path, digest: bytes, learner: Learner
    ) -> SnapshotRow:
        front = self._front
        name = new_name(learner.episodes, "imported")
        target = front.folder.snapshot(served.uid, name)
        await front.publisher.run_in_thread(place, arrival, target)
        held = [learner.labels.label(memory.class_id) for memory in learner.ltm.classes]
        new = NewSnapshot(
            served.id, name, learner.episodes, learner.episodes, json.dumps(held), "imported", header.size_bytes,
            digest, header.note,
        )  # fmt: skip
        return await self._record(served, new, target)


def _invalid(field: str, message: str) -> RpcError:
    return RpcError("FIELD_INVALID", message, fields=(field,), field=field)


def _check_note(note: str, field: str) -> None:
    if len(note.encode()) > LONGEST_NOTE:
        raise _invalid(field, f"a note has at most {LONGEST_NOTE} bytes")


def _malformed(defect: str) -> RpcError:
    return RpcError("SNAPSHOT_MALFORMED", f"not a whole snapshot: {defect}", defect=defect)


def _without_names(error: BaseException, path: Path) -> str:
    text = short(error).replace(path.name, "the file")
    return text if isinstance(error, SnapshotError) else f"{type(error).__name__}: {text}"


_ORIGINS = {
    "automatic": pb.SNAPSHOT_ORIGIN_AUTOMATIC,
    "requested": pb.SNAPSHOT_ORIGIN_REQUESTED,
    "imported": pb.SNAPSHOT_ORIGIN_IMPORTED,
}


def snapshot_message(row: SnapshotRow, learner: str) -> pb.Snapshot:
    """A snapshot as a message."""
    from sharp_server.learners.events import timestamp
    from sharp_server.prediction.summary import labels_message

    return pb.Snapshot(
        id=row.name,
        learner=learner,
        model_version=row.version,
        episodes_learned=row.episodes,
        classes=labels_message(json.loads(row.classes)),
        origin=_ORIGINS[row.origin],
        create_time=timestamp(row.created),
        size_bytes=row.size,
        sha256=row.sha256,
        note=row.note,
        damaged=bool(row.damaged),
    )
