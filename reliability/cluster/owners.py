"""Who owned which learner, and when: what the database says, looked at ten times a second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import psycopg

_SECONDS_BETWEEN_LOOKS = 0.1
_QUERY = """
    SELECT l.name, coalesce(s.node, '') FROM learners l LEFT JOIN cluster_servers s ON s.owner = l.owner"""


@dataclass(frozen=True)
class Change:
    """From this moment on a learner is owned by this node; empty: by nobody who is there."""

    moment: float
    learner: str
    node: str


class OwnerLog:
    """A thread that looks; a database that is away is looked at again later."""

    def __init__(self, rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self._rows = rows
        self.changes: list[Change] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owners", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        known: dict[str, str] = {}
        while not self._ending.wait(_SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(psycopg.Error):
                for learner, node in self._rows(_QUERY):
                    if known.get(learner) != node:
                        known[learner] = node
                        self.changes.append(Change(time.monotonic(), learner, node))

    def owned_elsewhere(self, learner: str, node: str, since: float) -> float | None:
        """The first moment at which another one owned a learner; None: nobody did yet."""
        found = (change for change in tuple(self.changes) if change.learner == learner and change.moment >= since)
        return next((change.moment for change in found if change.node not in ("", node)), None)

    def gaps(self, since: float) -> list[float]:
        """How long learners that went from one node to another since then were nobody's."""
        gaps: list[float] = []
        before: dict[str, Change] = {}
        for change in tuple(self.changes):
            last = before.get(change.learner)
            before[change.learner] = change
            if last is not None and change.node and change.moment >= since:
                gaps.append(0.0 if last.node else change.moment - last.moment)
        return gaps
