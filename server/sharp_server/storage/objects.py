"""Where files of versions, snapshots and finished phases are kept beyond this machine, and how they come and go.

An object is named by its learner and its own SHA-256, so it is put once and never changes: to find it there already is
success. What goes in and what comes out is verified here, for every store alike. A store must never say that an object
is missing because it could not be asked. It knows nothing of the journal, so it never decides what may be deleted.

Every function blocks, for a bounded time: none of them belongs on the event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sharp_server.errors import ObjectsUnavailable
from sharp_server.storage.data_folder import place, sync_folder

_CHUNK = 1 << 20
_DRAFT = ".draft-"


class MissingObjectError(Exception):
    """The store answers, and has no such object."""


class DamagedObjectError(Exception):
    """What came does not have the SHA-256 that it is named by."""


@dataclass(frozen=True)
class StoredObject:
    """An object in a store."""

    uid: str
    """Of the learner that it belongs to."""
    sha256: bytes
    modified: float
    """When it was put, in seconds, by the store's clock."""


class ObjectStore(Protocol):
    """Objects by learner and SHA-256. Whatever keeps it from answering is an `ObjectsUnavailable`."""

    def put(self, uid: str, sha256: bytes, content: bytes) -> None:
        """Create an object, durably; one that is there already stays as it is."""
        ...

    def has(self, uid: str, sha256: bytes) -> bool:
        """Whether there is such an object."""
        ...

    def read(self, uid: str, sha256: bytes) -> Iterator[bytes]:
        """The content of an object, piece by piece, or MissingObjectError."""
        ...

    def delete(self, uid: str, sha256s: Collection[bytes]) -> None:
        """Delete objects, with what a put that was cut off left of the learner; those that are gone are no fault."""
        ...

    def list(self, uid: str = "") -> list[StoredObject]:
        """The objects of a learner, or of all."""
        ...


def put_file(store: ObjectStore, uid: str, sha256: bytes, path: Path) -> None:
    """Put a file, if it is what it is said to be; nothing is sent if the store has it."""
    if store.has(uid, sha256):
        return
    content = path.read_bytes()
    if hashlib.sha256(content).digest() != sha256:
        raise DamagedObjectError("the file does not have the checksum it was written with")
    store.put(uid, sha256, content)


def fetch_file(store: ObjectStore, uid: str, sha256: bytes, path: Path) -> None:
    """Get an object as a file: whole, verified and durable, or not at all."""
    draft, digest = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp"), hashlib.sha256()
    try:
        with draft.open("wb") as file:
            for piece in store.read(uid, sha256):
                digest.update(piece)
                file.write(piece)
        if digest.digest() != sha256:
            raise DamagedObjectError("the object does not have the checksum it is named by")
        place(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class FolderObjects:
    """A folder that every machine sees, such as a mounted share: `UID/SHA-256`, complete or absent."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _path(self, uid: str, sha256: bytes) -> Path:
        return self._root / uid / sha256.hex()

    def put(self, uid: str, sha256: bytes, content: bytes) -> None:
        """Create an object: a draft that is flushed, then linked to its name, which fails if the name is taken."""
        path = self._path(uid, sha256)
        draft = path.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
        with self._reached():
            path.parent.mkdir(exist_ok=True, mode=0o700)
            try:
                with draft.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)
            sync_folder(self._root)

    def has(self, uid: str, sha256: bytes) -> bool:
        """Whether there is such an object."""
        with self._reached():
            return self._path(uid, sha256).exists()

    def read(self, uid: str, sha256: bytes) -> Iterator[bytes]:
        """The content of an object."""
        with self._reached():
            try:
                file = self._path(uid, sha256).open("rb")
            except FileNotFoundError:
                self._require_root()
                raise MissingObjectError(f"no object {sha256.hex()}") from None
            with file:
                while piece := file.read(_CHUNK):
                    yield piece

    def delete(self, uid: str, sha256s: Collection[bytes]) -> None:
        """Delete objects, and drafts that a crash left; the learner's folder goes with the last of them."""
        folder = self._root / uid
        with self._reached():
            for path in (*(self._path(uid, sha256) for sha256 in sha256s), *folder.glob(f"{_DRAFT}*")):
                path.unlink(missing_ok=True)
            if folder.exists():
                sync_folder(folder)
                with contextlib.suppress(OSError):  # there are others
                    folder.rmdir()

    def list(self, uid: str = "") -> list[StoredObject]:
        """The objects there are."""
        found = []
        with self._reached():
            for folder in (self._root / uid,) if uid else tuple(self._root.iterdir()):
                for path in folder.iterdir() if folder.is_dir() else ():
                    sha256 = sha256_of_name(path.name)
                    if sha256 is not None:
                        with contextlib.suppress(FileNotFoundError):
                            found.append(StoredObject(folder.name, sha256, path.stat().st_mtime))
        return found

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """A share that is full, failing or not mounted is one that can't be asked."""
        try:
            self._require_root()
            yield
        except OSError as error:
            raise ObjectsUnavailable(f"the folder of objects: {error.strerror or type(error).__name__}") from error

    def _require_root(self) -> None:
        if not self._root.is_dir():
            raise ObjectsUnavailable("the folder of objects is not there")


def sha256_of_name(name: str) -> bytes | None:
    """The SHA-256 that an object is named by; None: it is not one of ours."""
    try:
        sha256 = bytes.fromhex(name)
    except ValueError:
        return None
    return sha256 if len(sha256) == 32 and sha256.hex() == name else None
