"""In a cluster: which server owns which learner, as far as the servers told.

Any server takes any call and passes it on; one that did so names the owner in the metadata of its answer, and calls for
that learner go there directly as long as there is a connection. Without one, or when the owner refuses, they go to
the configured address again: nothing ever depends on what is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ._errors import SharpError, UnavailableError
from ._options import Tls, Token, is_loopback

OWNER_KEY: Final = "sharp-owner"
"""The key of the initial metadata under which a server names the owner."""

_ANYWHERE: Final = frozenset({"Predict", "PredictStream", "ListLearners", "GetServerStatus", "ImportWeights"})
"""Methods that are no better answered by the owner."""

_MOST_SERVERS: Final = 64
"""Connections to owners; learners of further ones are reached through the configured address."""


def learner_of(method: str, request: Any, learner: str) -> str:
    """The learner whose owner answers a call best; empty: any server does."""
    if method in _ANYWHERE:
        return ""
    named: str = learner or getattr(request, "learner", "") or getattr(request, "name", "")
    return named


class Owners:
    """Addresses of owners by learner. May be used by several threads: every step is one operation on a dictionary."""

    def __init__(self, token: Token, tls: Tls | None, insecure: bool) -> None:
        self._everywhere = not token or tls is not None or insecure
        """Whether a token, if there is one, may leave this machine."""
        self._by_learner: dict[str, str] = {}

    def address(self, learner: str) -> str | None:
        """Where its owner is, if somebody told."""
        return self._by_learner.get(learner)

    def take(self, learner: str, metadata: Iterable[tuple[str, str | bytes]] | None, known: int) -> str | None:
        """Read what an answer says, with so many connections to owners; gives the address if it is new."""
        for key, value in metadata or ():
            if key == OWNER_KEY and isinstance(value, str) and self._by_learner.get(learner) != value:
                if (self._everywhere or is_loopback(value)) and known < _MOST_SERVERS:
                    self._by_learner[learner] = value
                    return value
        return None

    def failed(self, learner: str, error: SharpError) -> None:
        """A call to the owner failed: if it can't be reached, or is the owner no more, ask elsewhere."""
        if isinstance(error, UnavailableError):
            self._by_learner.pop(learner, None)
