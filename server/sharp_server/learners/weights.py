"""Files of weights that learners may name: those in the operator's folder, and those that clients brought.

A client never names a path. What it brings is kept in the data folder under its SHA-256, bounded in bytes, and only
after it was read as plain tensors: nothing in it is ever run.
"""

from __future__ import annotations

import asyncio
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from sharp_engine import ConfigError
from sharp_engine.network.backbone import read_weights
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError, redact
from sharp_server.learners.arrival import Chunks, receive
from sharp_server.runtime.server_state import ServerState
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.data_folder import SUFFIX, DataFolder, place

_TORCH_SUFFIX = ".pth"


def folders_of_weights(config: ServerConfig) -> list[Path]:
    """Where files of weights are looked for, in this order."""
    own = [Path(config.data.weights_folder).absolute()] if config.data.weights_folder else []
    return [*own, DataFolder(config.data.path).weights]


def find_weights(name: str, config: ServerConfig) -> Path | None:
    """The file of that name, which must be no path."""
    found = (folder / name for folder in folders_of_weights(config))
    return next((path for path in found if path.is_file()), None)


@dataclass(frozen=True)
class ImportedWeights:
    """What taking a file in came to."""

    name: str
    stored: bool
    """False: it was there before."""


class Weights:
    """Takes in files of weights."""

    def __init__(self, config: ServerConfig, folder: DataFolder, state: ServerState, thread: BackgroundThread) -> None:
        self._limit, self._folder, self._state, self._thread = config.limits.weights_bytes, folder, state, thread
        self._arriving = 0

    async def take_in(self, size_bytes: int, sha256: bytes, chunks: Chunks) -> ImportedWeights:
        """Take in a file, unless it is there."""
        if len(sha256) != 32:
            raise _invalid("header.sha256", "the SHA-256 of the file is required: 32 bytes")
        if not size_bytes:
            raise _invalid("header.size_bytes", "the size of the file is required")
        known = await asyncio.to_thread(self._known, sha256)
        if known is not None:
            return ImportedWeights(known, stored=False)
        kept = await self._thread.run_in_thread(self._kept_bytes)
        if kept + self._arriving + size_bytes > self._limit:
            message = f"the file has {size_bytes} bytes: with those kept already, more than {self._limit}"
            raise RpcError("WEIGHTS_TOO_LARGE", message, bytes=size_bytes, limit=self._limit)
        arrival = self._folder.work / f".import-{os.urandom(8).hex()}.tmp"
        self._arriving += size_bytes
        try:
            await receive(chunks, arrival, size_bytes, sha256, _malformed, self._thread)
            # Not in the background thread, which may have a version to load: a large file takes a while.
            suffix = await asyncio.to_thread(self._checked, arrival)
            name = sha256.hex() + suffix
            await self._state.finish(self._thread.run_in_thread(self._keep, arrival.with_suffix(suffix), name))
            return ImportedWeights(name, stored=True)
        finally:
            self._arriving -= size_bytes
            for suffix in (".tmp", SUFFIX, _TORCH_SUFFIX):
                await self._thread.run_in_thread(arrival.with_suffix(suffix).unlink, missing_ok=True)

    def _known(self, sha256: bytes) -> str | None:
        names = (sha256.hex() + suffix for suffix in (SUFFIX, _TORCH_SUFFIX))
        return next((name for name in names if (self._folder.weights / name).is_file()), None)

    def _kept_bytes(self) -> int:
        folder = self._folder.weights
        return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0

    def _checked(self, arrival: Path) -> str:
        """Read a stranger's file as plain tensors; returns the suffix that its content asks for, and has by then."""
        with arrival.open("rb") as file:
            head = file.read(9)
        suffix = SUFFIX if head[8:] == b"{" else _TORCH_SUFFIX
        named = arrival.rename(arrival.with_suffix(suffix))
        if suffix == _TORCH_SUFFIX:
            self._check_unpacked(named)
        try:
            read_weights(named)
        except ConfigError as error:
            raise _malformed(redact(error).replace(named.name, "the file")) from None
        return suffix

    def _check_unpacked(self, path: Path) -> None:
        """Whether an archive holds no more than it may: it could be packed tightly."""
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            return  # an older kind of file, which packs nothing; or none at all, which torch finds out
        if size > self._limit:
            raise _malformed(f"unpacked it has {size} bytes, more than {self._limit}")

    def _keep(self, arrival: Path, name: str) -> None:
        self._folder.weights.mkdir(mode=0o700, exist_ok=True)
        place(arrival, self._folder.weights / name)


def _invalid(field: str, message: str) -> RpcError:
    return RpcError("FIELD_INVALID", message, fields=(field,), field=field)


def _malformed(defect: str) -> RpcError:
    return RpcError("WEIGHTS_MALFORMED", f"not a sound file of weights: {defect}", defect=defect)
