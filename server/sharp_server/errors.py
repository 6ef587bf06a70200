"""The exceptions with which the server refuses a call, and what they may say.

`RpcError(reason, "one sentence", key=value, …)` refuses for a reason of the wire's `ErrorReason`; `api.errors` turns it
into an answer. Nothing here knows of gRPC, and no text that passes `redact` holds a path.
"""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Iterable

_LONGEST_VALUE = 200
_LONGEST_MESSAGE = 1000


class RpcError(Exception):
    """A call, or an item of a stream, that is refused for a reason of `ErrorReason`."""

    def __init__(
        self, reason: str, message: str, *, fields: Iterable[str] = (), retry: float | None = None, **metadata: object
    ) -> None:
        message = message[:_LONGEST_MESSAGE]  # it may quote what came: a trailer has no room for that
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.fields = tuple(fields)
        self.retry = retry
        self.metadata = {key: redact(value) for key, value in metadata.items() if value is not None}


class JournalUnavailable(Exception):  # noqa: N818 (it recovers by itself)
    """The journal could not be written: the disk is full or failing. Nothing of the transaction was kept."""


class StoreUnavailable(JournalUnavailable):
    """The database that holds the journal can't be reached. Nothing of the transaction was kept."""


class StaleOwnerError(RpcError):
    """The server does not own the learner, or no longer: another one raised its epoch. Nothing was written."""

    def __init__(self, learner: int, owner: str) -> None:
        super().__init__("NOT_OWNER", "another server owns the learner", owner=owner or None)
        self.learner = learner


class ObjectsUnavailable(Exception):  # noqa: N818 (it recovers by itself)
    """The object store can't be reached, or refuses: whether it has an object is not known."""


# Possessive, and never begun within a word: a long name without a slash is read once, not once per letter.
_PATH = re.compile(r"(?<![\w.~-])(?:[\w.~-]*+/){2,}[\w.@+-]*+")


def redact(value: object) -> str:
    """A value as text that may leave the server: of bounded length, without a path."""
    text = _PATH.sub("…", str(value)[: 4 * _LONGEST_VALUE])  # a library may have put a path of ours into its message
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def disk_is_full(error: BaseException) -> bool:
    """Whether an exception means that a write found no room, or a disk that fails."""
    if isinstance(error, JournalUnavailable):
        return True
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) or 0
        return (code & 0xFF) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
    return isinstance(error, OSError) and error.errno in _DISK_REFUSES
