"""What the journal's write-ahead log ought to hold, read from the files before SQLite opens them (see `Witness`).

SQLite drops every frame from the first damaged one on, without a word: as if those transactions had never been. Whether
any were lost can be told from two witnesses: the frames' own headers, and the index beside the log (`-shm`), which
counts the frames that were committed and those that are in the main file already. The index is no more than a witness:
after a power cut it may be older than the log, and then it has other salts than the log and is not believed.

Nothing here writes, but `set_aside_if_stale`. Kept for two promises that SQLite's own checks can't keep, by
`tests/faults/test_damage.py`: `test_a_damaged_log_loses_no_version_and_what_it_lost_is_told`, and
`test_a_log_whose_damaged_pages_are_in_the_main_file_already_costs_nothing`.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER, _FRAME, _INDEX = 32, 24, 100
_MAGIC = (0x377F0682, 0x377F0683)
"""The last bit says in which byte order checksums are computed."""
_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Expected:
    """What was committed."""

    frames: int = 0
    """Frames of committed transactions."""
    applied: int = 0
    """Those of them that the main file has already."""

    def lost(self, recovered: int) -> int:
        """Committed frames that are neither among the first `recovered` of the log nor in the main file."""
        return max(0, self.frames - max(recovered, self.applied))


@dataclass(frozen=True)
class _Index:
    frames: int
    applied: int
    salt: bytes


@dataclass(frozen=True)
class _Log:
    page: int
    salt: bytes
    big: bool
    checksum: tuple[int, int]


def expected(journal: Path) -> Expected:
    """What both witnesses say together."""
    index, size = _index(_beside(journal, "-shm")), _size(_beside(journal, "-wal"))
    log = _log(_beside(journal, "-wal"))
    if log is None:
        if index is not None:
            return Expected(index.frames, index.applied)
        # No witness but the file's own length: whatever it was, nothing of it can be read.
        return Expected(size // 4096) if size > _HEADER else Expected()
    frames = _committed(_beside(journal, "-wal"), log, size)
    if index is not None and index.salt == log.salt:
        return Expected(max(frames, index.frames), index.applied)
    return Expected(frames)


class Witness:
    """The index of a log that SQLite has open in this process.

    Closing any descriptor of a file ends all locks that the process has on it, SQLite's too; the next process to open
    the journal would then take itself for the first one and cut the index off under our feet (SIGBUS). So the
    descriptor stays open until SQLite's own connections are closed.
    """

    def __init__(self, connection: sqlite3.Connection, journal: Path) -> None:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # SQLite reads the log now
        try:
            self._descriptor: int | None = os.open(_beside(journal, "-shm"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = None

    def recovered(self) -> int:
        """How many frames SQLite took as valid; asked before anything is written. Writes nothing itself."""
        index = None if self._descriptor is None else _parsed(os.pread(self._descriptor, _INDEX, 0))
        return 0 if index is None else index.frames

    def close(self) -> None:
        """Let go of the index; every connection to the journal must be closed before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def set_aside_if_stale(journal: Path, beginning: str) -> Expected | None:
    """Rename the log if frames are damaged that the main file has already; returns what it held, if so.

    SQLite would lay the sound frames before the damage, which are older, over what the main file has.
    """
    wal = _beside(journal, "-wal")
    index, log = _index(_beside(journal, "-shm")), _log(wal)
    if index is None or log is None or not index.applied or index.salt != log.salt:
        return None
    if _sound(wal, log, index.applied) >= index.applied:
        return None
    wal.rename(wal.with_name(beginning + wal.name))
    _beside(journal, "-shm").unlink(missing_ok=True)
    return Expected(index.frames, index.applied)


def _beside(journal: Path, suffix: str) -> Path:
    return journal.with_name(journal.name + suffix)


def _size(path: Path) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _index(path: Path) -> _Index | None:
    """The index's header, if its two copies agree."""
    try:
        with path.open("rb") as file:
            return _parsed(file.read(_INDEX))
    except OSError:
        return None


def _parsed(head: bytes) -> _Index | None:
    if len(head) < _INDEX or head[:48] != head[48:96] or not head[12]:
        return None
    (frames,) = struct.unpack("=I", head[16:20])
    (applied,) = struct.unpack("=I", head[96:100])
    return _Index(frames, min(applied, frames), head[32:40])


def _log(path: Path) -> _Log | None:
    """The log's header, if it is whole."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except OSError:
        return None
    if len(head) < _HEADER:
        return None
    magic, _, page, _ = struct.unpack(">IIII", head[:16])
    if magic not in _MAGIC:
        return None
    found = _checksum(head[:24], magic == _MAGIC[1], (0, 0))
    if found != struct.unpack(">II", head[24:32]) or not 512 <= page <= 65536 or page.bit_count() != 1:
        return None
    return _Log(page, head[16:24], magic == _MAGIC[1], found)


def _committed(path: Path, log: _Log, size: int) -> int:
    """The last frame that ends a transaction, by the frames' headers alone; checksums are not looked at.

    One frame whose header is damaged does not hide those after it.
    """
    last = 0
    with path.open("rb") as file:
        for frame in range((size - _HEADER) // (_FRAME + log.page)):
            file.seek(_HEADER + frame * (_FRAME + log.page))
            head = file.read(_FRAME)
            if head[8:16] == log.salt and head[4:8] != b"\0\0\0\0":
                last = frame + 1
    return last


def _sound(path: Path, log: _Log, most: int) -> int:
    """How many frames from the first on have the right checksum; no more than `most` are looked at."""
    state = log.checksum
    with path.open("rb") as file:
        file.seek(_HEADER)
        for frame in range(most):
            head, page = file.read(_FRAME), file.read(log.page)
            if len(page) < log.page or head[8:16] != log.salt:
                return frame
            state = _checksum(page, log.big, _checksum(head[:8], log.big, state))
            if state != struct.unpack(">II", head[16:24]):
                return frame
    return most


def _checksum(data: bytes, big: bool, state: tuple[int, int]) -> tuple[int, int]:
    """SQLite's running checksum of a log."""
    one, two = state
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
