"""Errors as a server returns them."""

from __future__ import annotations

from .._errors import SharpError
from .._failures import canonical_code, is_retryable


def refuse(kind: type[SharpError], message: str, **metadata: object) -> SharpError:
    """Make the error that a client gets for a reason."""
    retryable = is_retryable(kind.reason)
    return kind(
        message,
        code=canonical_code(kind.reason),
        metadata={key: str(value) for key, value in metadata.items()},
        retryable=retryable,
        retry_delay=0.01 if retryable else None,
    )
