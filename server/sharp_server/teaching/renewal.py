"""A lane made anew: a version, and what the journal has beyond it, taught in the journal's order."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence

from sharp_server.prediction.summary import Summary
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import Beyond, BeyondKey
from sharp_server.teaching.lane import Lane
from sharp_server.teaching.protocol import TeacherDiedError
from sharp_server.teaching.remote import Bases, RemoteLearner

log = logging.getLogger(__name__)

BYTES_AT_ONCE = 4 << 20
"""Of batches read back from the journal."""

Head = tuple[str, bytes]
"""Name and SHA-256 of the snapshot of a version."""


class Renewal:
    """Belongs to the event loop; the caller holds the lane."""

    def __init__(self, storage: Storage, bases: Bases) -> None:
        self._storage, self._bases = storage, bases

    async def begin(self, lane: Lane, head: Head | None, summary: Summary | None) -> RemoteLearner:
        """The version by itself, or a new learner where there is none."""
        served = lane.served
        with accused(lane, ()):
            if head is None:
                return await self._bases.new(served.config)
            classes = summary.labels if summary is not None else ()
            return (await self._bases.version(served.uid, *head, served.config, classes))[0]

    async def make(self, lane: Lane, learner: RemoteLearner) -> None:
        """Teach a version everything up to the last lesson, and up to the batch that lessons are stamped with."""
        served = lane.served
        lane.begin_anew(learner)
        waiting = list(lane.queue)
        last = await self._storage.last_lesson(served.id)
        while last is not None and last.counted > lane.counted:
            lane.counted = last.counted
            await lane.until(lambda: not lane.stamps)  # those that have an older stamp come before it
            waiting = list(lane.queue)
            last = await self._storage.last_lesson(served.id)
        key, unjudged = BeyondKey(), {lesson.place for lesson in waiting}
        end, met = max(last or key, BeyondKey(lane.counted)), set[int]()
        while key < end:
            found = await self._storage.beyond(served.id, key, BYTES_AT_ONCE)
            found = [item for item in found if item.key <= end]
            if not found:
                break
            wrong = await self.teach_again(lane, learner, found, unjudged)
            for item in found:
                if not item.lesson:
                    lane.batch_examples += item.examples
                elif item.place not in lane.suspects.left_out:
                    outcome = wrong.get(item.place, lane.outcome(item.place))
                    lane.lesson_taught(item.place, item.examples, item.bytes, outcome)
            met |= {item.place for item in found}
            key = found[-1].key
        lane.suspects.left_out &= met  # the others left the journal
        for lesson in waiting:  # known again, or part of the version by now
            lesson.settled = True
        lane.stale = False
        lane.weigh()

    async def teach_again(
        self, lane: Lane, learner: RemoteLearner, items: Sequence[Beyond], judged: Collection[int] = ()
    ) -> dict[int, int]:
        """Teach arrivals from the journal, but for those that are left out; one by one under suspicion."""
        served, wrong = lane.served, dict[int, int]()
        items = [item for item in items if item.place not in lane.suspects.left_out]
        per_request = 1 if lane.suspects.careful else max(1, len(items))
        for first in range(0, len(items), per_request):
            some = items[first : first + per_request]
            with accused(lane, [item.place for item in some]):
                wrong |= await learner.teach_again(some, served.input_shape or (), served.labels_by_ordinal(), judged)
        return wrong


@contextlib.contextmanager
def accused(lane: Lane, places: Sequence[int]) -> Iterator[None]:
    """The teacher is at these arrivals, or at the version alone: if it dies, they are suspected of it."""
    try:
        yield
    except TeacherDiedError as death:
        if death.at_work and (left_out := lane.suspects.accuse(places)) is not None:
            log.error("%s: the teacher died over arrival %d again and again: left out", lane.served.name, left_out)
        raise
    lane.suspects.acquit(places)
