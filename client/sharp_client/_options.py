"""How a client behaves: deadlines, retries, limits, trust. Small values, checked on construction."""

from __future__ import annotations

import logging
import os
import random
import stat
import threading
from dataclasses import dataclass, fields
from pathlib import Path

import grpc

logger = logging.getLogger("sharp_client")

MESSAGE_BYTES = 4 * 2**20
"""Every server accepts messages of this size."""

BATCH_EXAMPLES = 1024
"""Every server accepts this many examples in one message."""


def _check_positive(options: object, *, optional: tuple[str, ...] = ()) -> None:
    for option in fields(options):  # type: ignore[arg-type]
        value = getattr(options, option.name)
        if value is None and option.name in optional:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise ValueError(f"{type(options).__name__}.{option.name} must be over 0, not {value!r}")


@dataclass(frozen=True)
class Timeout:
    """How long to wait, in seconds."""

    call: float = 60.0
    """For the answer to one call, all its retries included."""
    connect: float = 20.0
    """For a stream to be opened."""
    transfer: float = 3600.0
    """For a whole export, import or stream of predictions."""
    acknowledge: float | None = 3600.0
    """On a learn stream: for any message while something is not acknowledged; silence may also mean that
    the learner holds as much as it may. A dead connection is found sooner. None: for ever."""

    def __post_init__(self) -> None:
        _check_positive(self, optional=("acknowledge",))


@dataclass(frozen=True)
class Retry:
    """How often and how fast to try again what may succeed later."""

    attempts: int = 4
    """Attempts of one call, the first included. 1: no retry."""
    initial_delay: float = 0.1
    """Seconds before the second attempt."""
    multiplier: float = 2.0
    """Each further delay is this much longer."""
    largest_delay: float = 2.0
    """Seconds that a delay is at most, unless the server asks for more."""
    resume_for: float = 300.0
    """Seconds for which a broken learn stream is reopened before it fails."""

    def __post_init__(self) -> None:
        _check_positive(self)

    def delay(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after so many failures in a row, slightly random; never less than the server asked."""
        delay = min(self.initial_delay * self.multiplier ** (failures - 1), self.largest_delay)
        return max(delay * random.uniform(0.9, 1.0), asked or 0.0)


@dataclass(frozen=True)
class Limits:
    """How much to send and to hold."""

    message_bytes: int = MESSAGE_BYTES
    """Bytes of one Predict message. A learn stream uses the server's own limit."""
    batch_examples: int = BATCH_EXAMPLES
    """Examples of one Predict message."""
    window_batches: int = 64
    """Batches of a learn stream that may be sent and not acknowledged yet."""
    window_bytes: int = 64 * 2**20
    """The same in bytes. One batch always fits."""
    receive_bytes: int = 256 * 2**20
    """Bytes of the largest answer that is accepted."""

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True)
class Tls:
    """How the server is trusted, and, for mutual TLS, the client's own certificate. Files in PEM."""

    ca_file: str | os.PathLike[str] | None = None
    """Authorities that vouch for the server. None: those of the system."""
    cert_file: str | os.PathLike[str] | None = None
    """The client's own certificate, for mutual TLS."""
    key_file: str | os.PathLike[str] | None = None
    """Its key."""
    server_name: str | None = None
    """The name that the server's certificate must have. None: the one in the address."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError(
                f"Tls.cert_file and Tls.key_file come together, not {self.cert_file!r} and {self.key_file!r}"
            )

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files."""

        def read(path: str | os.PathLike[str] | None) -> bytes | None:
            return None if path is None else Path(path).read_bytes()

        return grpc.ssl_channel_credentials(read(self.ca_file), read(self.key_file), read(self.cert_file))


class Token:
    """A bearer token, given as it is or by a file that is read again when it changes."""

    def __init__(self, value: str | None = None, file: str | os.PathLike[str] | None = None) -> None:
        if value is not None and file is not None:
            raise ValueError("give a token or a token file, not both")
        self._value, self._file = value, None if file is None else Path(file)
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()
        if value is not None and not value.strip():
            raise ValueError("the token is empty")
        if self._file is not None:
            self._read(self._file)

    def __bool__(self) -> bool:
        return self._value is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What to send with each call."""
        if self._file is not None:
            try:
                self._read(self._file)
            except (OSError, ValueError) as error:  # it may be about to be replaced
                logger.warning("the token file can't be read, the token stays as it was: %s", error)
        return () if self._value is None else (("authorization", f"Bearer {self._value}"),)

    def _read(self, file: Path) -> None:
        with self._lock:
            seen = file.stat()
            if (seen.st_mtime_ns, seen.st_size) == self._stamp:
                return
            if seen.st_mode & stat.S_IROTH and os.name == "posix":
                logger.warning("everybody on this machine can read the token in %s: chmod o-r %s", file, file)
            lines = file.read_text(encoding="utf-8").split()
            if len(lines) != 1:
                raise ValueError(f"{file} must hold one token and nothing else, not {len(lines)} words")
            self._stamp, self._value = (seen.st_mtime_ns, seen.st_size), lines[0]


def is_loopback(address: str) -> bool:
    """Whether an address can't leave this machine."""
    host = address.rpartition(":")[0].strip("[]") if not address.startswith("unix:") else "localhost"
    return host in ("localhost", "::1") or host.startswith("127.")
