"""Files of learners that are another server's: this one keeps what it serves of them, and nothing else for long.

Whoever follows fetches one version after the other, and whoever owned a learner has all of it. Their owner deletes
versions in its own cache and in the object store, when a class is forgotten above all: they must not live on here.
"""

from __future__ import annotations

import logging
import time

from sharp_server.cluster.followed_learners import FollowedLearners
from sharp_server.cluster.owned_learners import OwnedLearners
from sharp_server.context import ClusterParts

log = logging.getLogger(__name__)

_SECONDS_KEPT = 60.0
"""A file this young may be that of a learner which is just being made or taken up."""


class CachedFiles:
    """Belongs to the event loop; files are deleted in the thread that fetches them."""

    def __init__(self, parts: ClusterParts, owned: OwnedLearners, followed: FollowedLearners) -> None:
        self._parts, self._owned, self._followed = parts, owned, followed

    async def sweep(self, seconds_kept: float = _SECONDS_KEPT) -> int:
        """Delete what no version that serves here is in; gives how many files that were."""
        thread, files = self._parts.thread, self._parts.files
        before = time.time() - seconds_kept
        swept = 0
        for uid, found in (await thread.run_in_thread(files.older_than, before)).items():
            # Asked last: what a learner has that is taken up from here on is not among those that were found.
            if self._is_here(uid):
                continue
            serving = self._followed.file_of(uid)
            gone = [path for path in found if path != serving]
            await thread.run_in_thread(files.drop, gone)
            swept += len(gone)
        if swept:
            log.info("%d files of other servers' learners left the cache", swept)
        return swept

    def _is_here(self, uid: str) -> bool:
        return self._owned.is_untaken(uid) or any(served.uid == uid for served in self._parts.registry)
