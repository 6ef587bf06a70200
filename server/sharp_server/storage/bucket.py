"""An S3-compatible bucket as an object store, through `obstore`.

Credentials, region and endpoint come from the environment, as every client of S3 reads them (AWS_ACCESS_KEY_ID, …);
this module neither reads nor logs them. Every call has a bound in time. It must never overwrite an object: puts are
create-only, by the bucket itself (If-None-Match).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from sharp_server.errors import ObjectsUnavailable, redact
from sharp_server.storage.objects import MissingObjectError, StoredObject, sha256_of_name

_CONNECT_SECONDS = 5
_RETRIES = 2
"""Of one call, at once: whoever calls waits and tries again by itself, and says so."""
_CHUNK = 1 << 20
_LISTED_AT_ONCE = 1000


class BucketObjects:
    """Objects below a prefix of a bucket, as `PREFIX/UID/SHA-256`."""

    def __init__(self, bucket: str, prefix: str, seconds: float) -> None:
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            # The bucket checks what arrives by itself, too.
            config={"checksum_algorithm": "SHA256"},
            client_options={
                # Used only with an endpoint that the operator has named with http://.
                "allow_http": True,
                "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, seconds)),
                "timeout": timedelta(seconds=seconds),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=seconds)},
        )

    def put(self, uid: str, sha256: bytes, content: bytes) -> None:
        """Create an object."""
        with _reached(), contextlib.suppress(AlreadyExistsError):
            obstore.put(self._store, _key(uid, sha256), content, mode="create")

    def has(self, uid: str, sha256: bytes) -> bool:
        """Whether there is such an object."""
        with _reached():
            try:
                obstore.head(self._store, _key(uid, sha256))
            except FileNotFoundError:
                return False
            return True

    def read(self, uid: str, sha256: bytes) -> Iterator[bytes]:
        """The content of an object."""
        with _reached():
            try:
                found = obstore.get(self._store, _key(uid, sha256))
            except FileNotFoundError:
                self.list(uid)  # a bucket that is gone has no objects either, but that is another matter
                raise MissingObjectError(f"no object {sha256.hex()}") from None
            for piece in found.stream(min_chunk_size=_CHUNK):
                yield bytes(piece)

    def delete(self, uid: str, sha256s: Collection[bytes]) -> None:
        """Delete objects. A put that was cut off leaves nothing in a bucket: each is one request."""
        if sha256s:
            with _reached(), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, [_key(uid, sha256) for sha256 in sha256s])

    def list(self, uid: str = "") -> list[StoredObject]:
        """The objects there are."""
        found = []
        with _reached():
            for metas in obstore.list(self._store, uid or None, chunk_size=_LISTED_AT_ONCE):
                for meta in metas:
                    owner, _, name = meta["path"].rpartition("/")
                    sha256 = sha256_of_name(name)
                    if sha256 is not None and "/" not in owner:
                        found.append(StoredObject(owner, sha256, meta["last_modified"].timestamp()))
        return found


def _key(uid: str, sha256: bytes) -> str:
    return f"{uid}/{sha256.hex()}"


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Whatever goes wrong on the way, and is not the answer, means that the bucket can't be asked."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        why = (str(error).splitlines() or [""])[0].rpartition(" - ")[2]  # without the request and its address
        raise ObjectsUnavailable(f"the bucket: {redact(why) or type(error).__name__}") from None
