"""What was found damaged on disk: logged, counted, and written down for the operator."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from sharp_server.errors import JournalUnavailable
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import CorruptionEvent, SnapshotRow

log = logging.getLogger(__name__)


class DamageLog:
    """Notes damage; a full disk is no reason to stop over it."""

    def __init__(self, storage: Storage, metrics: Metrics) -> None:
        self._storage, self._metrics = storage, metrics

    async def note(self, learner: str, snapshot: str, lost: int, serving: int, detail: str) -> None:
        """Something is damaged; `lost` is the version that was lost, `serving` the one that serves instead."""
        log.error("%s", f"{learner}: {detail}; version {serving} serves" if learner else detail)
        self._metrics.corruption_events.inc()
        event = CorruptionEvent(learner, snapshot, lost, serving, detail)
        await self._if_room(self._storage.add_corruption_event(event))

    async def mark(self, served: ServedLearner, row: SnapshotRow) -> None:
        """The file of a snapshot is not what was written."""
        await self._if_room(self._storage.mark_damaged(row))
        served.found_damaged()

    async def found(self, served: ServedLearner, row: SnapshotRow) -> None:
        """The same, while the server runs. A snapshot that was deleted meanwhile is not damaged: that is refused.

        Its record goes before its file, so a file that is missing is damage only if the record is still there.
        """
        await self._storage.snapshot(served.id, row.name)
        await self.mark(served, row)
        detail = f"snapshot of version {row.version} is damaged"
        await self.note(served.name, row.name, row.version, served.model.version, detail)

    async def _if_room(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except JournalUnavailable as error:
            log.warning("the journal has no room to keep that: %s", error)
