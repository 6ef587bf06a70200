"""The versions of a learner: how good they were, and the step back to the one before, whatever made the newest.

Every version was made from the one before it, but for one that was itself undone: that holds an older one, and undoing
it goes back from there. So undoing twice goes back two versions, and never to and fro.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharp_engine import Label
from sharp_server.errors import RpcError
from sharp_server.learners.restoring import Restoring
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.prediction.quality import MeasuredVersion, from_json
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import SnapshotRow, VersionRow


@dataclass(frozen=True)
class UndoReport:
    """What undoing came to, or would."""

    serving: int
    undone: VersionRow
    restored: SnapshotRow
    episodes_undone: int
    episodes_waiting: int
    forgotten: list[Label]


class Versions:
    """Looks back, and goes back."""

    def __init__(self, storage: Storage, restoring: Restoring) -> None:
        self._storage, self._restoring = storage, restoring

    async def qualities(self, served: ServedLearner) -> list[MeasuredVersion]:
        """How good the newest versions are, newest first."""
        rows = await self._storage.qualities(served.id)
        return [MeasuredVersion(row.version, row.created, from_json(row.quality)) for row in rows]

    async def undo(self, served: ServedLearner, version: int, preview: bool) -> UndoReport:
        """Undo a version, the one that serves; or only say what that would do."""
        with served.change():
            serving = served.model.version
            if version and version != serving:
                message = f"version {version} does not serve: {serving} does"
                raise RpcError(
                    "VERSION_NOT_FOUND", message, version=version, serving=serving, fields=("model_version",)
                )
            undone, row = await self._before(served, serving)
            waiting, episodes = len(served.backlog.waiting()), max(0, served.model.episodes - row.episodes)
            if preview:
                return UndoReport(serving, undone, row, episodes, waiting, [])
            done = await self._restoring.restore_row(served, row, holds=row.version)
            return UndoReport(done.version, undone, row, episodes, waiting, done.forgotten)

    async def _before(self, served: ServedLearner, serving: int) -> tuple[VersionRow, SnapshotRow]:
        """The version that serves, and the snapshot that holds the one before it."""
        here = undone = await self._storage.version(served.id, serving)
        while here is not None and here.holds is not None:
            here = await self._storage.version(served.id, here.holds)
        before = (here.version if here is not None else serving) - 1
        if before < 1:
            message = "there is no version before the one that serves"
            raise RpcError("NOTHING_TO_UNDO", message, version=serving, learner=served.name)
        for row in await self._storage.snapshots(served.id):
            if row.version == before and row.origin != "imported" and not row.damaged:
                return undone or VersionRow(serving, 0.0, "", None), row
        message = f"the snapshot of version {before} is no longer kept"
        raise RpcError("NOTHING_TO_UNDO", message, version=serving, learner=served.name)
