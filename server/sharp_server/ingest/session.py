"""One Learn call: reads batches and marks, has them written, acknowledges what is durable, passes events on.

Reading goes on while earlier batches are being written, within bounds; an acknowledgement follows the commit, never
precedes it. What was written before a fault stays, and is acknowledged before the call ends with that fault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from sharp.v1 import learning_pb2 as pb
from sharp_engine import Label
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.ingest.segmentation import Cut, StreamSegmenter
from sharp_server.learners import events
from sharp_server.learners.inputs import Examples
from sharp_server.learners.mailbox import Mailbox
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import check_architecture
from sharp_server.runtime.metrics import Metrics
from sharp_server.storage.interface import Storage
from sharp_server.storage.records import Arrival, EpisodeRow, Ordinals, StreamRow

_EVENTS_UNREAD = 1000
"""A producer that does not read its events is not read from either."""


BatchDecoder = Callable[[pb.Batch, ServedLearner], Awaitable[tuple[Examples, list[Label]]]]
"""Examples and labels of a batch, or the refusal; the wire's business."""


@dataclass(frozen=True)
class SessionTools:
    """What every session works with."""

    limits: LimitsConfig
    storage: Storage
    metrics: Metrics
    threads: Executor
    """For the segmenter's work."""
    decode: BatchDecoder
    wake_trainer: Callable[[], None]
    batches_arrived: Callable[[ServedLearner], None]
    """They are to be counted."""


class LearnSession:
    """The state of one Learn call."""

    def __init__(self, served: ServedLearner, stream: StreamRow, fail_when_full: bool, tools: SessionTools) -> None:
        self._served, self._stream, self._tools = served, stream, tools
        self._mailbox = Mailbox()
        self._durable = stream.durable
        self._fault: BaseException | None = None
        self._fail_when_full = fail_when_full
        self._next = stream.durable + 1
        self._acknowledge = False
        self._empty_marks: list[int] = []
        """Durable and not acknowledged yet: marks that closed nothing."""
        self._closed = False
        self._items = 0
        """Under way: submitted and not yet durable."""
        self._moved = asyncio.Event()
        self._segmenter: StreamSegmenter | None = None
        self._epoch = -1

    @property
    def stream(self) -> StreamRow:
        """The stream as it was when the call was opened."""
        return self._stream

    @property
    def mailbox(self) -> Mailbox:
        """Where events for the producer wait."""
        return self._mailbox

    @property
    def durable(self) -> int:
        """The last sequence number that is durable."""
        return self._durable

    # ---- answers ------------------------------------------------------------------------------------------------

    async def answer(self, write: Callable[[pb.LearnResponse], Awaitable[None]]) -> None:
        """Send acknowledgements and events until the call is over; raises the fault that ended it."""
        while True:
            over = self._items == 0 and (self._fault is not None or (self._closed and not self._waits()))
            waiting, durable, acknowledge = self._mailbox.take(), self._durable, self._acknowledge
            empty_marks, self._empty_marks = self._empty_marks, []
            self._acknowledge = False
            # The order that `learning.proto` promises: whoever has the Ack of a number knows what ended there.
            closed = [event for event in waiting if event.HasField("closed")]
            later = [event for event in waiting if not event.HasField("closed")]
            for event in closed:
                await write(pb.LearnResponse(event=event))
            if acknowledge:
                await write(self.acknowledgement(durable, empty_marks))
            for event in later:
                await write(pb.LearnResponse(event=event))
            self._move()
            if over and not self._acknowledge and not len(self._mailbox):
                break
            await self._mailbox.wait()
        if self._fault is not None:
            raise self._fault

    def acknowledgement(self, durable: int, empty_marks: list[int]) -> pb.LearnResponse:
        """Everything up to a number is durable; `empty_marks` among it closed nothing."""
        served = self._served
        return pb.LearnResponse(
            ack=pb.Ack(
                sequence=durable,
                unlearned_bytes=served.backlog.bytes,
                empty_marks=empty_marks,
                examples_durable=served.examples_durable,
                uncounted_examples=served.uncounted_examples,
            )
        )

    def _waits(self) -> bool:
        return self._served.backlog.waits_for(self._stream.id)

    def fail(self, fault: BaseException) -> None:
        """End the call with a fault, after what is under way is written and acknowledged."""
        if self._fault is None:
            self._fault = fault
        self._mailbox.wake()
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    # ---- requests -----------------------------------------------------------------------------------------------

    async def listen(self, read: Callable[[], Awaitable[pb.LearnRequest | None]]) -> None:
        """Take requests until the client closes its side or something is wrong with one."""
        try:
            while self._fault is None:
                request = await read()
                if request is None:
                    self._closed = True
                    break
                await self._take(request)
        except Exception as fault:
            self.fail(fault)
        self._mailbox.wake()

    async def _take(self, request: pb.LearnRequest) -> None:
        kind = request.WhichOneof("message")
        if kind is None:
            raise RpcError("FIELD_INVALID", "an empty message", fields=("message",), field="message")
        if kind == "open":
            message = "the stream is open already"
            raise RpcError("UNEXPECTED_MESSAGE", message, expected="batch or end_episode", found="open")
        sequence = request.batch.sequence if kind == "batch" else request.end_episode.sequence
        if sequence < 1:
            field = f"{kind}.sequence"
            raise RpcError("FIELD_INVALID", "sequence numbers start with 1", fields=(field,), field=field)
        if sequence < self._next:  # durable, or on its way in this very call
            if sequence <= self._durable:
                self._acknowledge = True
                self._mailbox.wake()
            return
        if sequence > self._next:
            message = f"number {self._next} was left out"
            raise RpcError("SEQUENCE_GAP", message, expected=self._next, found=sequence)
        while len(self._mailbox) > _EVENTS_UNREAD and self._fault is None:
            await self._moved.wait()
        await self._tools.storage.room()
        if self._fault is not None:
            return
        if kind == "batch":
            await self._take_batch(request.batch)
        else:
            await self._take_mark(sequence)

    async def _take_batch(self, batch: pb.Batch) -> None:
        served, limits = self._served, self._tools.limits
        examples, labels = await self._tools.decode(batch, served)
        count = len(examples.x)
        await self._make_room(len(examples.data) + 4 * count)
        if self._fault is not None:
            return
        shape = tuple(examples.x.shape[1:])
        if served.input_shape is None:
            check_architecture(served.config, shape)
        elif served.input_shape != shape:  # fixed by another stream while this one was decoded or waited
            expected, found = list(served.input_shape), list(shape)
            raise RpcError("SHAPE_MISMATCH", "another shape was fixed meanwhile", expected=expected, found=found)
        cuts: list[Cut] = []
        while True:
            y = served.classes.number(labels, limits.classes)
            if self._stream.boundaries != "AUTOMATIC":
                break
            epoch = served.segmentation_epoch
            cuts = await self._segment(examples, y, epoch)
            if self._fault is not None:
                return
            if epoch == served.segmentation_epoch:
                break
        self._append(batch.sequence, examples, labels, y, cuts)

    def _append(self, sequence: int, examples: Examples, labels: list[Label], y: Ordinals, cuts: list[Cut]) -> None:
        """Nothing waits in here: what is decided about the learner and what is written agree."""
        served, shape = self._served, tuple(examples.x.shape[1:])
        kind = "text" if isinstance(labels[0], str) else "integer"
        served.fix_inputs(shape, kind)
        arrival = Arrival(
            learner=served.id,
            stream=self._stream.id,
            sequence=sequence,
            count=len(y),
            dtype=examples.dtype,
            x=examples.data,
            y=y.tobytes(),
            new_classes=served.classes.not_durable(labels),
            fixes=None if served.inputs_durable else (json.dumps(shape), kind),
            cuts=tuple(cuts),
        )
        self._next += 1
        self._items += 1
        served.backlog.reserve(arrival.bytes)
        future = self._tools.storage.append(arrival)
        future.add_done_callback(lambda done: self._written(done, arrival))

    async def _segment(self, examples: Examples, y: Ordinals, epoch: int) -> list[Cut]:
        loop = asyncio.get_running_loop()
        lost: list[Cut] = []
        if self._segmenter is None or self._epoch != epoch:
            while self._items and self._fault is None:
                await self._moved.wait()
            if self._fault is not None:
                return []
            slices = await self._tools.storage.open_slices(self._stream.id)
            segmenter = StreamSegmenter(self._served.config, tuple(examples.x.shape[1:]))
            lost = await loop.run_in_executor(self._tools.threads, segmenter.rebuild, slices)
            self._segmenter, self._epoch = segmenter, epoch
        return lost + await loop.run_in_executor(self._tools.threads, self._segmenter.feed, examples.x, y)

    async def _take_mark(self, sequence: int) -> None:
        if self._segmenter is not None:
            self._segmenter.clear()
        self._next += 1
        self._items += 1
        future = self._tools.storage.close_episode(self._served.id, self._stream.id, sequence)
        future.add_done_callback(lambda done: self._marked(done, sequence))

    async def _make_room(self, nbytes: int) -> None:
        """Wait, or refuse, while the learner holds as many bytes as it may."""
        limit, backlog = self._tools.limits.unlearned_bytes, self._served.backlog
        while backlog.bytes + nbytes > limit and self._fault is None:
            if self._items:  # among them may be the mark that makes an episode learnable
                await self._moved.wait()
                continue
            details: dict[str, Any] = {"bytes": backlog.bytes, "limit": limit, "durable_sequence": self._durable}
            if backlog.next() is None:
                message = "the limit of unlearned bytes is filled by episodes that are not ended, or are parked"
                raise RpcError("EPISODE_TOO_LARGE", message, **details)
            if self._fail_when_full:
                message = "the learner has taken as many bytes as it may hold unlearned"
                raise RpcError("JOURNAL_FULL", message, retry=2.0, **details)
            room = asyncio.ensure_future(backlog.room_freed())
            moved = asyncio.ensure_future(self._moved.wait())
            try:
                await asyncio.wait({room, moved}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                room.cancel()
                moved.cancel()

    # ---- what became of them ------------------------------------------------------------------------------------

    def _written(self, done: asyncio.Future[list[EpisodeRow]], arrival: Arrival) -> None:
        served = self._served
        if done.cancelled() or done.exception() is not None:
            served.backlog.release(arrival.bytes)
            self._lost(done)
            return
        served.inputs_are_durable()
        served.classes.made_durable(ordinal for ordinal, _ in arrival.new_classes)
        served.examples_arrived(arrival.count)
        self._tools.metrics.examples_ingested.inc(arrival.count)
        self._became_durable(arrival.sequence, done.result())

    def _marked(self, done: asyncio.Future[list[EpisodeRow]], sequence: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self._lost(done)
            return
        if not done.result():
            self._empty_marks.append(sequence)
        self._became_durable(sequence, done.result())

    def _lost(self, done: asyncio.Future[list[EpisodeRow]]) -> None:
        self._items -= 1
        self._segmenter = None
        error = done.exception() if not done.cancelled() else None
        self._served.unfix_inputs()
        self.fail(error or RpcError("SERVER_NOT_READY", "the server is stopping"))

    def _became_durable(self, sequence: int, closed: list[EpisodeRow]) -> None:
        served = self._served
        self._items -= 1
        self._durable = sequence
        self._acknowledge = True
        for episode in closed:
            served.backlog.closed(episode)
            served.emit(events.closed(episode, served.backlog.ahead_of(episode)), self._stream.id)
        self._tools.batches_arrived(served)
        if closed:
            self._tools.wake_trainer()
        if closed or served.watched:
            served.notify()
        self._mailbox.wake()
        self._move()
