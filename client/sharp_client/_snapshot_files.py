"""Snapshots and weights between files and the wire: whole and with the right checksum, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sharp.v1 import snapshot_pb2, weights_pb2

from ._batching import check_learner_name
from ._failures import local_error
from ._reasons import ChecksumMismatchError, SnapshotMalformedError, UnexpectedMessageError, WeightsMalformedError

CHUNK_BYTES = 2**20
"""Bytes of one message."""


class SnapshotReceiver:
    """Writes the file of a snapshot as its parts arrive; the file exists after `finish`, and not before."""

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self._path, self._overwrite = Path(path), overwrite
        self._check_free()
        self._snapshot: snapshot_pb2.Snapshot | None = None
        self._digest = hashlib.sha256()
        self._size = 0
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.", suffix=".part")
        self._file, self._temporary = os.fdopen(handle, "wb"), Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _check_free(self) -> None:
        if not self._overwrite and self._path.exists():
            raise FileExistsError(errno.EEXIST, "The file is there already", str(self._path))

    def receive(self, message: snapshot_pb2.ExportSnapshotResponse) -> None:
        """Write one part."""
        part = message.WhichOneof("part")
        if (part == "snapshot") != (self._snapshot is None):
            raise local_error(UnexpectedMessageError, f"a message with {part} came at the wrong time", found=part)
        if part == "snapshot":
            self._snapshot = message.snapshot
        else:
            self._file.write(message.chunk)
            self._digest.update(message.chunk)
            self._size += len(message.chunk)

    def finish(self) -> snapshot_pb2.Snapshot:
        """Check size and SHA-256, and move the file into place."""
        snapshot = self._snapshot
        if snapshot is None or self._size != snapshot.size_bytes:
            expected = 0 if snapshot is None else snapshot.size_bytes
            raise local_error(
                SnapshotMalformedError,
                f"received {self._size} bytes, but {expected} were announced",
                defect="size",
            )
        if self._digest.digest() != snapshot.sha256:
            raise local_error(
                ChecksumMismatchError,
                "the received bytes do not have the announced SHA-256",
                expected=snapshot.sha256.hex(),
                found=self._digest.hexdigest(),
            )
        self._check_free()  # again: the transfer may have taken long
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.chmod(0o644)
        self._temporary.replace(self._path)
        return snapshot


def import_requests(
    learner: str, path: str | os.PathLike[str], *, restore: bool, note: str
) -> Iterator[snapshot_pb2.ImportSnapshotRequest]:
    """Read a file into messages, its size and SHA-256 first. A file that can't be read is raised here, not later."""
    check_learner_name(learner)
    size, digest = _size_and_digest(path)
    if size == 0:
        raise local_error(SnapshotMalformedError, f"{path} is empty", defect="size")
    header = snapshot_pb2.ImportHeader(learner=learner, size_bytes=size, sha256=digest, restore=restore, note=note)

    def messages() -> Iterator[snapshot_pb2.ImportSnapshotRequest]:
        yield snapshot_pb2.ImportSnapshotRequest(header=header)
        for chunk in _chunks(path):
            yield snapshot_pb2.ImportSnapshotRequest(chunk=chunk)

    return messages()


def weights_requests(path: str | os.PathLike[str]) -> Iterator[weights_pb2.ImportWeightsRequest]:
    """The same for a file of weights."""
    size, digest = _size_and_digest(path)
    if size == 0:
        raise local_error(WeightsMalformedError, f"{path} is empty", defect="size")

    def messages() -> Iterator[weights_pb2.ImportWeightsRequest]:
        yield weights_pb2.ImportWeightsRequest(header=weights_pb2.WeightsHeader(size_bytes=size, sha256=digest))
        for chunk in _chunks(path):
            yield weights_pb2.ImportWeightsRequest(chunk=chunk)

    return messages()


def _size_and_digest(path: str | os.PathLike[str]) -> tuple[int, bytes]:
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        return file.tell(), digest


def _chunks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
