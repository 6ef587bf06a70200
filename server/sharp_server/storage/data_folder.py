"""The layout of the data folder, its lock, and writes that are complete or absent.

Names of files are made by the server, never taken from a client: no name that comes over the wire reaches this module.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from pathlib import Path

SUFFIX = ".safetensors"
QUARANTINE_PREFIX = "damaged-"
"""Beginning of the names of files that were damaged and set aside."""
MANIFEST = "learner.json"
"""Beside a learner's snapshots: who it is (see `manifest.py`)."""

_MARKS = {"automatic": "a", "requested": "r", "imported": "i"}


class FolderInUseError(RuntimeError):
    """Another server has the data folder."""


class DataFolder:
    """The data folder of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.journal = self.path / "journal.db"
        self.snapshots = self.path / "snapshots"
        self.work = self.path / "work"
        self.weights = self.path / "weights"
        self._lock: int | None = None

    def acquire(self) -> None:
        """Make the folder and take its lock, or raise FolderInUseError. The lock goes with the process."""
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        for folder in (self.path, self.snapshots, self.work):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.path, *(folder.parent for folder in missing)):
            sync_folder(folder)  # or a power cut could take the folder itself
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise FolderInUseError(f"another server has the data folder {self.path}") from None
        self._lock = lock

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def of_learner(self, uid: str) -> Path:
        """The folder of a learner's snapshots."""
        return self.snapshots / uid

    def make_learner(self, uid: str) -> None:
        """Make the folder of a learner's snapshots, durably."""
        self.of_learner(uid).mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.snapshots)

    def snapshot(self, uid: str, name: str) -> Path:
        """The file of a snapshot."""
        return self.of_learner(uid) / (name + SUFFIX)

    def has_phase(self, stem: str) -> bool:
        """Whether there is a file of a half-learned episode, by the beginning of its name."""
        return next(self.work.glob(f"{stem}-*{SUFFIX}"), None) is not None

    def clear_work(self, uid: str) -> None:
        """Delete a learner's half-learned episodes."""
        for path in self.work.glob(f"*{uid}-*"):
            path.unlink(missing_ok=True)

    def empty_learner(self, uid: str) -> None:
        """Delete all files of a learner, but leave its folder: a note that it was here."""
        self.clear_work(uid)
        folder = self.of_learner(uid)
        with contextlib.suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            sync_folder(folder)

    def delete_learner(self, uid: str) -> None:
        """Delete all files of a learner, and its folder."""
        self.empty_learner(uid)
        with contextlib.suppress(FileNotFoundError):
            self.of_learner(uid).rmdir()
        sync_folder(self.snapshots)

    def learners(self) -> set[str]:
        """The learners that have a folder here, by uid."""
        return {folder.name for folder in self.snapshots.iterdir() if folder.is_dir()}

    def older_than(self, moment: float) -> dict[str, list[Path]]:
        """Snapshots and half-learned episodes by learner (uid) that were written before a moment."""
        found: dict[str, list[Path]] = {}
        for path in (*self.snapshots.glob(f"*/*{SUFFIX}"), *self.work.glob(f"[!.]*{SUFFIX}")):
            uid = path.name.split("-")[0] if path.parent == self.work else path.parent.name
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < moment:
                    found.setdefault(uid, []).append(path)
        return found

    def delete_snapshots(self, uid: str, names: list[str]) -> None:
        """Delete the files of snapshots."""
        for name in names:
            self.snapshot(uid, name).unlink(missing_ok=True)
        if names:
            with contextlib.suppress(FileNotFoundError):
                sync_folder(self.of_learner(uid))

    def sweep_learner(self, uid: str, kept: set[str]) -> int:
        """Delete what a crash left behind among a learner's snapshots; returns how many files that were."""
        swept = 0
        for path in self.of_learner(uid).iterdir():
            if path.name.removesuffix(SUFFIX) not in kept and path.name != MANIFEST:
                path.unlink(missing_ok=True)
                swept += 1
        if swept:
            sync_folder(self.of_learner(uid))
        return swept

    def delete_set_aside(self) -> int:
        """Delete damaged journals that were kept for whoever can repair them; returns how many files that were."""
        set_aside = list(self.path.glob(f"{QUARANTINE_PREFIX}*"))
        for path in set_aside:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if set_aside:
            sync_folder(self.path)
        return len(set_aside)

    def sweep(self, kept: dict[str, set[str]], keep_folders: bool) -> int:
        """Delete what a crash left behind: files without a row. `kept`: names of snapshots by uid.

        `keep_folders`: those of learners without a row stay, empty, until their objects are deleted, too.
        """
        swept = 0
        for folder in self.snapshots.iterdir():
            names = kept.get(folder.name)
            for path in folder.iterdir() if folder.is_dir() else ():
                if names is None or (path.name.removesuffix(SUFFIX) not in names and path.name != MANIFEST):
                    path.unlink(missing_ok=True)
                    swept += 1
            if names is None and folder.is_dir() and not keep_folders:
                folder.rmdir()
        for path in self.work.iterdir():
            if path.name.split("-")[0] not in kept:
                path.unlink(missing_ok=True)
                swept += 1
        return swept

    def usage(self) -> tuple[int, int]:
        """Bytes that the folder takes, and bytes that are free on its disk."""
        taken = 0
        for root, _, files in os.walk(self.path):
            for name in files:
                with contextlib.suppress(OSError):
                    taken += os.stat(os.path.join(root, name)).st_size
        return taken, self.free_bytes()

    def free_bytes(self) -> int:
        """Bytes that are free on its disk."""
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize


def new_name(version: int, origin: str = "automatic") -> str:
    """A name for a snapshot: sorts by version, says where it came from, never used twice."""
    return f"{version:08d}{_MARKS[origin]}-{secrets.token_hex(6)}"


def origin_and_version(name: str) -> tuple[str, int] | None:
    """Origin and version of a snapshot's name; None: it is not one of ours."""
    found = re.fullmatch(r"(\d{8,})([ari])-[0-9a-f]{12}", name)
    if found is None:
        return None
    return next(origin for origin, mark in _MARKS.items() if mark == found[2]), int(found[1])


def sha256_of(path: Path) -> bytes:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def sync_folder(path: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def place(temporary: Path, path: Path) -> None:
    """Flush a finished file, give it its name, and make that durable."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
