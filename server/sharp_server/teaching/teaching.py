"""Keeps what answers know beyond their version: lessons at once, batches a moment later, all in the journal's order.

A process with little priority does the work, for all learners; the event loop decides the order and swaps finished
predictors in. What a learner knows is always what the journal's order makes of it (`Storage.beyond`): a lesson is
stamped with the batch that was counted last when it came, and none is counted in between. So whatever changes the
order (a version, a parked episode, a forgotten or merged class) holds the lane, lets the journal change, and has
everything made anew from there; lessons that come meanwhile wait. Batches are read back from the journal a few at a
time: however many wait there, memory holds no more.

When the teacher dies, all of that is made again from the journal, and lessons that wait are answered afterwards;
predictions go on with what serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sharp_engine import Label
from sharp_server.config.model import TeachingConfig
from sharp_server.errors import RpcError
from sharp_server.prediction.model import Model, load_learner, model_of
from sharp_server.prediction.summary import Summary
from sharp_server.runtime.threads import BackgroundThread
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import Beyond, BeyondKey, LessonRow, NewLesson
from sharp_server.storage.version_files import VersionFiles
from sharp_server.teaching.lane import Lane, Lesson, Teachable, Waiting
from sharp_server.teaching.process import Teacher
from sharp_server.teaching.protocol import Examples, Known, Saved, Taken, TeacherDiedError
from sharp_server.teaching.remote import Bases, RemoteLearner
from sharp_server.teaching.renewal import BYTES_AT_ONCE, Head, Renewal, accused

log = logging.getLogger(__name__)

_LESSONS_AT_ONCE = 4
"""Taught before their predictor is swapped in, where so many wait: teaching one makes its predictor all but ready, so
more would only keep the first of them waiting."""
_SECONDS_BETWEEN_BATCHES = 1.0
"""A batch is counted this often even if lessons come without a pause."""
_SECONDS_BETWEEN_SWAPS = 0.2
"""While batches are counted one after the other."""
_SECONDS_TO_COUNT = 1.0
"""How long a new version waits for batches to be counted on top of it, so that what they brought stays known."""
_SECONDS_AFTER_A_FAILURE = 1.0
_ANY_LESSON = 1 << 62

T = TypeVar("T")


class Teaching:
    """Teaches learners; belongs to the event loop."""

    def __init__(
        self,
        config: TeachingConfig,
        storage: Storage,
        teacher: Teacher,
        files: VersionFiles,
        thread: BackgroundThread,
        device: str,
    ) -> None:
        """`thread`: where things are freed, and where versions that the teacher can't have are loaded, on `device`."""
        self._config, self._storage, self._files, self._thread = config, storage, files, thread
        self._device = device
        self._renewal = Renewal(storage, Bases(teacher, files, thread))
        self._lanes: dict[Teachable, Lane] = {}
        self._closed = False
        teacher.listen(self._teacher_died)

    def _lane(self, served: Teachable) -> Lane:
        lane = self._lanes.get(served)
        if lane is None:
            lane = self._lanes[served] = Lane(served)
        return lane

    def lessons(self, served: Teachable) -> int:
        """Lessons that are known beyond the version."""
        return self._lane(served).lessons

    def oldest_lesson(self, served: Teachable) -> float:
        """Since when the oldest of them has been known (monotonic)."""
        return self._lane(served).oldest_lesson

    # ---- what arrives -----------------------------------------------------------------------------------------------

    async def teach(
        self,
        served: Teachable,
        make: Callable[[int], NewLesson],
        durable: Callable[[LessonRow], None],
        x: Examples,
        labels: Sequence[Label],
    ) -> Lesson:
        """Have a lesson written and taught; `make` gets the stamp it is to carry, `durable` hears of the disk."""
        lane, stamp = self._lane(served), self._lane(served).counted
        known: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def written(done: asyncio.Future[LessonRow]) -> None:
            lane.stamps.popleft()
            if not done.cancelled() and done.exception() is None:
                row = done.result()
                durable(row)
                if not row.repetition:
                    served.lesson_arrived(len(labels))
                    known.add_done_callback(lambda _: served.lesson_known(len(labels)))
                    lane.queue.append(Waiting(row.place, stamp, x, labels, known))
            self._wake(lane)

        writing = self._storage.keep_lesson(make(stamp))
        lane.stamps.append(stamp)
        writing.add_done_callback(written)
        row = await asyncio.shield(writing)
        if not row.repetition:
            return Lesson(row, await known)
        # The first call may not have been answered yet.
        await lane.until(lambda: not lane.stale and all(waiting.place != row.place for waiting in lane.queue))
        return Lesson(row, lane.outcome(row.place))

    def batches_arrived(self, served: Teachable) -> None:
        """Batches are durable: they are counted as soon as there is time."""
        if served.can_be_taught:
            self._wake(self._lane(served))

    # ---- changes of the journal -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def held(self, served: Teachable) -> AsyncIterator[None]:
        """Nothing is taught while the journal changes what is to be known, or in which order.

        The caller has it made anew by `rebuild` and serves that; if it does not come so far, it is done afterwards.
        """
        lane = self._lane(served)
        async with lane.lock:
            lane.stale = True
            lane.counted = 0  # lessons that are written after the change come first
            try:
                yield
            except BaseException:
                lane.stale = True
                raise
            finally:
                self._wake(lane)

    @contextlib.asynccontextmanager
    async def opened(self, served: Teachable, head: Head, summary: Summary) -> AsyncIterator[RemoteLearner | None]:
        """A version that is about to become durable, loaded; raises what is wrong with its file.

        None: the teacher dies of it. Then it was loaded here, and is to be served without what is beyond it.
        """
        lane = self._lane(served)
        opened = await self._insist(lane, lambda: self._renewal.begin(lane, head, summary))
        if opened is None:
            await self._plain(served, head, 0, summary)
        try:
            yield opened
        finally:
            if opened is not None and lane.taught is not opened:
                opened.drop()

    async def rebuild(
        self, served: Teachable, head: Head | None, version: int, summary: Summary | None, opened: RemoteLearner | None
    ) -> Model:
        """What serves a version that has just become durable: every lesson beyond it, and batches if that is quick."""
        lane, first = self._lane(served), [opened] if opened is not None else []
        model = await self._insist(
            lane, lambda: self._rebuilt(lane, head, version, summary, first.pop() if first else None)
        )
        if model is not None:
            return model
        lane.begin_anew(None)
        return await self._plain(served, head, version, summary)

    async def serve_again(self, served: Teachable) -> None:
        """Serve the same version with what the journal has beyond it now. The caller holds it."""
        model = served.model
        known = await self.rebuild(served, served.head, model.version, model.summary, None)
        self._serve(served, replace(known, quality=model.quality))

    async def load(self, served: Teachable) -> None:
        """At start-up: know what the journal has beyond the version that serves, up to the last lesson."""
        lane = self._lane(served)
        there = served.head is not None or served.model.predictor is None  # else its file could not be written
        if there and served.can_be_taught and await self._storage.last_lesson(served.id) is not None:
            async with lane.lock:
                known = await self._insist(lane, lambda: self._known_up_to_last_lesson(lane))
                if known is not None:
                    self._swap(lane, known)
        self.batches_arrived(served)

    async def save(self, served: Teachable, path: Path) -> Saved | None:
        """Write what can become a version without a change of any answer; none: there is no such lesson.

        Nor is there one while something is left out: a version would take it from the journal.
        """
        lane = self._lane(served)
        async with lane.lock:
            if lane.taught is None or lane.stale or not lane.lessons or lane.suspects.left_out:
                return None
            try:
                return await lane.taught.save(path, lane.first_lesson)
            except TeacherDiedError:
                lane.stale = True
                self._wake(lane)
                raise

    @contextlib.asynccontextmanager
    async def unchanged(self, served: Teachable) -> AsyncIterator[None]:
        """Nothing is taught meanwhile, and everything that is known stays so."""
        async with self._lane(served).lock:
            yield

    def consolidated(self, served: Teachable, until: int, version: int, summary: Summary) -> Model:
        """Lessons up to a place are part of this version now; gives what serves, which knows what it knew."""
        lane, model = self._lane(served), served.model
        lane.take_in(until)
        return Model(version, model.predictor, summary, lane.beyond, lane.batch_examples, model.known)

    def forget(self, served: Teachable, farewell: RpcError) -> None:
        """The learner is deleted, or goes on elsewhere."""
        lane = self._lanes.pop(served, None)
        if lane is not None:
            lane.refuse(list(lane.queue), farewell)
            if lane.task is not None:
                lane.task.cancel()
            lane.let_go()

    def close(self) -> None:
        """Teach nothing more."""
        self._closed = True
        for lane in list(self._lanes.values()):
            lane.refuse(list(lane.queue), RpcError("SERVER_NOT_READY", "the server is stopping"))
            if lane.task is not None:
                lane.task.cancel()

    def _teacher_died(self) -> None:
        """What it knew beyond versions is made anew."""
        for lane in list(self._lanes.values()):
            if lane.taught is not None:
                lane.taught, lane.stale = None, lane.stale or bool(lane.beyond)
                self._wake(lane)

    # ---- the work of one learner ------------------------------------------------------------------------------------

    def _wake(self, lane: Lane) -> None:
        lane.move()
        if lane.task is None and not self._closed and not lane.served.deleted:
            lane.task = asyncio.get_running_loop().create_task(self._work(lane), name=f"teach {lane.served.name}")

    async def _work(self, lane: Lane) -> None:
        """Until there is nothing to do."""
        try:
            while not lane.served.deleted:
                try:
                    async with lane.lock:
                        if lane.stale:
                            await self._reload(lane)
                        await self._refuse_left_out(lane)
                        lane.answer([w for w in lane.queue if w.settled or lane.knows(w.place)])
                        if not await self._step(lane):
                            break
                except TeacherDiedError as error:
                    lane.stale = True
                    if lane.suspects.hopeless:
                        log.error("%s: the teacher keeps dying of its version", lane.served.name)
                        lane.refuse(list(lane.queue), error)
                        await asyncio.sleep(lane.suspects.pause())
                except Exception as error:
                    log.exception("%s could not be taught", lane.served.name)
                    lane.stale = True
                    lane.refuse(list(lane.queue), error)
                    await asyncio.sleep(_SECONDS_AFTER_A_FAILURE)
        finally:
            lane.task = None
            self._let_go()

    async def _step(self, lane: Lane) -> bool:
        """Teach what is next; false: there is nothing."""
        batch = await self._next_batch(lane)
        group = [w for w in lane.queue if batch is None or w.counted < batch.place]
        if group:
            at_once = 1 if lane.suspects.careful else _LESSONS_AT_ONCE
            await self._teach(lane, await self._taught(lane), group[:at_once])
        elif lane.stamps and (batch is None or lane.stamps[0] < batch.place):  # a lesson on its way to the disk
            stamps = len(lane.stamps)
            await lane.until(lambda: len(lane.stamps) != stamps)
        elif batch is not None:
            taught = await self._taught(lane)
            await self._count(lane, taught, batch)
            if not lane.ahead or time.monotonic() - lane.last_swap >= _SECONDS_BETWEEN_SWAPS:
                self._swap(lane, await self._known(lane, taught))
        else:
            return False
        return True

    async def _next_batch(self, lane: Lane) -> Beyond | None:
        """The batch to be counted next, from when on lessons are stamped with it; none while lessons come first."""
        served = lane.served
        if not lane.ahead and served.can_be_taught and served.unlearned_examples > lane.batch_examples:
            found = await self._storage.beyond(served.id, BeyondKey(lane.counted, _ANY_LESSON), BYTES_AT_ONCE)
            lane.ahead.extend(item for item in found if not item.lesson)
        if not lane.ahead:
            return None
        place, lessons_wait = lane.ahead[0].place, bool(lane.queue or lane.stamps)
        if place > lane.counted and lessons_wait and time.monotonic() - lane.last_batch < _SECONDS_BETWEEN_BATCHES:
            return None
        lane.counted = max(lane.counted, place)
        return lane.ahead[0]

    async def _taught(self, lane: Lane) -> RemoteLearner:
        if lane.taught is None:
            lane.taught = await self._renewal.begin(lane, lane.served.head, lane.served.model.summary)
        return lane.taught

    async def _teach(self, lane: Lane, taught: RemoteLearner, group: list[Waiting]) -> None:
        with accused(lane, [waiting.place for waiting in group]):
            found = await taught.teach([Taken(w.place, True, w.x, w.labels) for w in group])
        refused: list[tuple[Waiting, Exception]] = []
        for waiting, outcome in zip(group, found.outcomes, strict=True):
            if isinstance(outcome, int):
                lane.lesson_taught(waiting.place, len(waiting.labels), waiting.x.nbytes, outcome)
            else:
                refused.append((waiting, outcome))
        lane.weigh()
        self._swap(lane, found.known)
        lane.answer([waiting for waiting in group if lane.knows(waiting.place)])
        for waiting, error in refused:
            await self._storage.drop_lesson(lane.served.id, waiting.place)
            lane.refuse([waiting], error)

    async def _count(self, lane: Lane, taught: RemoteLearner, batch: Beyond) -> None:
        lane.ahead.popleft()
        await self._renewal.teach_again(lane, taught, [batch])
        lane.batch_examples += batch.examples
        lane.last_batch = time.monotonic()

    def _swap(self, lane: Lane, known: Known) -> None:
        lane.last_swap = time.monotonic()
        taught = replace(
            lane.served.model,
            predictor=known.predictor,
            examples_beyond_version=lane.beyond,
            batch_examples=lane.batch_examples,
            known=known.summary,
        )
        self._serve(lane.served, taught)

    def _serve(self, served: Teachable, model: Model) -> None:
        self._thread.discard(served.model)
        served.serve_taught(model)

    def _let_go(self) -> None:
        """Keep few learners in memory to which nothing was taught since their version."""
        idle = [lane for lane in self._lanes.values() if lane.taught and not (lane.beyond or lane.lock.locked())]
        idle.sort(key=lambda lane: lane.last_swap, reverse=True)
        for lane in idle[self._config.idle_learners :]:
            lane.let_go()

    # ---- made anew --------------------------------------------------------------------------------------------------

    async def _reload(self, lane: Lane) -> None:
        """What is known is not what the journal says, or gone: begin with the version that serves."""
        await lane.until(lambda: not lane.stamps)  # lessons on their way may come before others
        model = lane.served.model
        known = await self._rebuilt(lane, lane.served.head, model.version, model.summary, None)
        self._serve(lane.served, replace(known, quality=model.quality))

    async def _rebuilt(
        self, lane: Lane, head: Head | None, version: int, summary: Summary | None, opened: RemoteLearner | None
    ) -> Model:
        taught = opened or await self._renewal.begin(lane, head, summary)
        await self._renewal.make(lane, taught)
        deadline = time.monotonic() + _SECONDS_TO_COUNT
        while not lane.stamps and not lane.queue and time.monotonic() < deadline:
            batch = await self._next_batch(lane)
            if batch is None:
                break
            await self._count(lane, taught, batch)
        known = await self._known(lane, taught)
        lane.suspects.acquit_all()
        return Model(version, known.predictor, summary, lane.beyond, lane.batch_examples, known.summary)

    async def _known_up_to_last_lesson(self, lane: Lane) -> Known:
        taught = await self._renewal.begin(lane, lane.served.head, lane.served.model.summary)
        await self._renewal.make(lane, taught)
        return await self._known(lane, taught)

    async def _known(self, lane: Lane, taught: RemoteLearner) -> Known:
        with accused(lane, ()):
            return await taught.known()

    async def _insist(self, lane: Lane, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do something with the teacher, from its beginning each time that it dies; None: it dies every time."""
        while True:
            try:
                return await work()
            except TeacherDiedError:
                lane.stale = True
                if lane.suspects.hopeless:
                    log.error("%s: the teacher keeps dying of its version", lane.served.name)
                    return None

    async def _plain(self, served: Teachable, head: Head | None, version: int, summary: Summary | None) -> Model:
        """A version without what is beyond it, loaded here."""
        if head is None:
            return Model(version, None, summary)
        learner = await self._thread.run_in_thread(load_learner, self._files, served.uid, *head, self._device)
        return await self._thread.run_in_thread(model_of, learner, version, summary)

    async def _refuse_left_out(self, lane: Lane) -> None:
        """Lessons that kill the teacher, and whose calls are still open: they are gone."""
        for waiting in [waiting for waiting in lane.queue if waiting.place in lane.suspects.left_out]:
            await self._storage.drop_lesson(lane.served.id, waiting.place)
            lane.suspects.left_out.discard(waiting.place)
            lane.refuse([waiting], RuntimeError("the teaching process died of this lesson, again and again"))
