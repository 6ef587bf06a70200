"""One Learn call: reads batches and marks, has them written, acknowledges what is durable, passes events on.

Reading goes on while earlier batches are being written, within bounds; an acknowledgement follows the commit, never
precedes it. What was written before a fault stays, and is acknowledged before the call ends with that fault.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from sharp.v1 import learning_pb2 as pb
from sharp_server.api.decode.inputs import Examples, examples_of, inputs_need_thread, labels_of
from sharp_server.config.model import ServerConfig
from sharp_server.errors import RpcError
from sharp_server.ingest.segmentation import Cut, StreamSegmenter
from sharp_server.learners import events
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import check_architecture
from sharp_server.storage.sqlite import streams as ledger_ingest
from sharp_server.storage.sqlite.journal import Journal
from sharp_server.storage.sqlite.streams import Arrival, EpisodeRow, Ordinals, StreamRow

if TYPE_CHECKING:
    from sharp_server.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_EVENTS_UNREAD = 1000
"""A producer that does not read its events is not read from either."""


class Session:
    """The state of one Learn call."""

    def __init__(
        self,
        served: ServedLearner,
        stream: StreamRow,
        fail_when_full: bool,
        config: ServerConfig,
        journal: Journal,
        metrics: Metrics,
        threads: Executor,
        wake_trainer: Callable[[], None],
    ) -> None:
        self.served, self.stream = served, stream
        self.mailbox = events.Mailbox()
        self.durable = stream.durable
        self.fault: BaseException | None = None
        self._fail_when_full = fail_when_full
        self._config, self._journal, self._metrics = config, journal, metrics
        self._threads, self._wake_trainer = threads, wake_trainer
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

    # ---- answers ------------------------------------------------------------------------------------------------

    async def answer(self, write: Callable[[pb.LearnResponse], Awaitable[None]]) -> None:
        """Send acknowledgements and events until the call is over; raises the fault that ended it."""
        while True:
            over = self._items == 0 and (self.fault is not None or (self._closed and not self._unsettled()))
            waiting, durable, acknowledge = self.mailbox.take(), self.durable, self._acknowledge
            empty_marks, self._empty_marks = self._empty_marks, []
            self._acknowledge = False
            # The order that `learning.proto` promises: whoever has the Ack of a number knows what ended there.
            closed = [event for event in waiting if event.HasField("closed")]
            for event in closed:
                await write(pb.LearnResponse(event=event))
            if acknowledge:
                await write(self.acknowledgement(durable, empty_marks))
            for event in waiting:
                if not event.HasField("closed"):
                    await write(pb.LearnResponse(event=event))
            self._move()
            if over and not self._acknowledge and not len(self.mailbox):
                break
            await self.mailbox.wait()
        if self.fault is not None:
            raise self.fault

    def acknowledgement(self, durable: int, empty_marks: list[int]) -> pb.LearnResponse:
        """Everything up to a number is durable; `empty_marks` among it closed nothing."""
        unlearned = max(0, self.served.bytes)
        return pb.LearnResponse(ack=pb.Ack(sequence=durable, unlearned_bytes=unlearned, empty_marks=empty_marks))

    def _unsettled(self) -> bool:
        return any(e.stream == self.stream.id and e.state == "waiting" for e in self.served.episodes.values())

    def fail(self, fault: BaseException) -> None:
        """End the call with a fault, after what is under way is written and acknowledged."""
        if self.fault is None:
            self.fault = fault
        self.mailbox.wake()
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    # ---- requests -----------------------------------------------------------------------------------------------

    async def listen(self, read: Callable[[], Awaitable[pb.LearnRequest | None]]) -> None:
        """Take requests until the client closes its side or something is wrong with one."""
        try:
            while self.fault is None:
                request = await read()
                if request is None:
                    self._closed = True
                    break
                await self._take(request)
        except (RpcError, Exception) as fault:
            self.fail(fault)
        self.mailbox.wake()

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
            if sequence <= self.durable:
                self._acknowledge = True
                self.mailbox.wake()
            return
        if sequence > self._next:
            message = f"number {self._next} was left out"
            raise RpcError("SEQUENCE_GAP", message, expected=self._next, found=sequence)
        while len(self.mailbox) > _EVENTS_UNREAD and self.fault is None:
            await self._moved.wait()
        await self._journal.room()
        if self.fault is not None:
            return
        if kind == "batch":
            await self._take_batch(request.batch)
        else:
            await self._take_mark(sequence)

    async def _take_batch(self, batch: pb.Batch) -> None:
        served = self.served
        examples = await self._decoded(batch)
        count = len(examples.x)
        labels = labels_of(batch.labels, served.label_kind, count)
        nbytes = len(examples.data) + 4 * count
        await self._make_room(nbytes)
        if self.fault is not None:
            return
        shape = tuple(examples.x.shape[1:])
        if served.input_shape is None:
            check_architecture(served.config, shape)
        elif served.input_shape != shape:  # settled by another stream while this one was decoded or waited
            expected, found = list(served.input_shape), list(shape)
            raise RpcError("SHAPE_MISMATCH", "another shape was settled", expected=expected, found=found)
        cuts: list[Cut] = []
        while True:
            y = self._ordinals(labels)
            if self.stream.boundaries != "AUTOMATIC":
                break
            epoch = served.epoch
            cuts = await self._segment(examples, y, epoch)
            if epoch == served.epoch and self.fault is None:
                break
            if self.fault is not None:
                return
        # From here to `submit` nothing waits: what is decided about the learner and what is written agree.
        served.input_shape, served.label_kind = shape, "text" if isinstance(labels[0], str) else "integer"
        arrival = Arrival(
            learner=served.id,
            stream=self.stream.id,
            sequence=batch.sequence,
            count=count,
            dtype=examples.dtype,
            x=examples.data,
            y=y.tobytes(),
            new_classes=self._fresh(labels),
            settled=None if served.settled_on_disk else (json.dumps(shape), served.label_kind),
            cuts=tuple(cuts),
        )
        self._next += 1
        self._items += 1
        served.bytes += arrival.bytes
        future = self._journal.submit(lambda connection: ledger_ingest.append(connection, arrival), arrival.bytes)
        future.add_done_callback(lambda done: self._written(done, arrival))

    async def _decoded(self, batch: pb.Batch) -> Examples:
        if not inputs_need_thread(batch.inputs):
            return examples_of(batch.inputs, self.served.input_shape, self._config.limits)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, examples_of, batch.inputs, self.served.input_shape, self._config.limits
        )

    def _ordinals(self, labels: list[str | int]) -> Ordinals:
        """The classes' ordinals; classes met for the first time get the next ones."""
        known = self.served.known
        if not known.keys() >= set(labels):
            new = [label for label in dict.fromkeys(labels) if label not in known]
            limit = self._config.limits.classes
            if len(known) + len(new) > limit:
                message = f"the learner would have more than {limit} classes"
                raise RpcError("TOO_MANY_CLASSES", message, limit=limit)
            for label in new:
                known[label] = self.served.next_class
                self.served.next_class += 1
        return np.fromiter(map(known.__getitem__, labels), np.int32, len(labels))

    def _fresh(self, labels: list[str | int]) -> tuple[tuple[int, str], ...]:
        """(ordinal, label as JSON) of classes that are not in the journal yet."""
        ordinals = {self.served.known[label]: label for label in set(labels)}
        return tuple((o, json.dumps(ordinals[o])) for o in sorted(ordinals.keys() - self.served.on_disk))

    async def _segment(self, examples: Examples, y: Ordinals, epoch: int) -> list[Cut]:
        loop = asyncio.get_running_loop()
        lost: list[Cut] = []
        if self._segmenter is None or self._epoch != epoch:
            while self._items and self.fault is None:
                await self._moved.wait()
            if self.fault is not None:
                return []
            parts = await self._journal.read(ledger_ingest.open_parts, self.stream.id)
            segmenter = StreamSegmenter(self.served.config, tuple(examples.x.shape[1:]))
            lost = await loop.run_in_executor(self._threads, segmenter.rebuild, parts)
            self._segmenter, self._epoch = segmenter, epoch
        return lost + await loop.run_in_executor(self._threads, self._segmenter.feed, examples.x, y)

    async def _take_mark(self, sequence: int) -> None:
        if self._segmenter is not None:
            self._segmenter.clear()
        self._next += 1
        self._items += 1
        learner, stream = self.served.id, self.stream.id
        future = self._journal.submit(
            lambda connection: [e for e in (ledger_ingest.mark(connection, learner, stream, sequence),) if e], 0
        )
        future.add_done_callback(lambda done: self._marked(done, sequence))

    async def _make_room(self, nbytes: int) -> None:
        """Wait, or refuse, while the learner holds as many bytes as it may."""
        limit, served = self._config.limits.unlearned_bytes, self.served
        while served.bytes + nbytes > limit and self.fault is None:
            if self._items:  # among them may be the mark that makes an episode learnable
                await self._moved.wait()
                continue
            told: dict[str, Any] = {"bytes": served.bytes, "limit": limit, "durable_sequence": self.durable}
            if not served.waiting():
                message = "the limit of unlearned bytes is filled by episodes that are not ended, or are parked"
                raise RpcError("EPISODE_TOO_LARGE", message, **told)
            if self._fail_when_full:
                message = "the learner has taken as many bytes as it may hold unlearned"
                raise RpcError("JOURNAL_FULL", message, retry=2.0, **told)
            room = asyncio.ensure_future(served.room.wait())
            moved = asyncio.ensure_future(self._moved.wait())
            try:
                await asyncio.wait({room, moved}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                room.cancel()
                moved.cancel()

    # ---- what became of them ------------------------------------------------------------------------------------

    def _written(self, done: asyncio.Future[list[EpisodeRow]], arrival: Arrival) -> None:
        served = self.served
        if done.cancelled() or done.exception() is not None:
            served.free(arrival.bytes)
            self._lost(done)
            return
        served.settled_on_disk = True
        served.on_disk.update(ordinal for ordinal, _ in arrival.new_classes)
        served.open_examples += arrival.count
        served.ingested.add(arrival.count)
        self._metrics.examples_ingested.inc(arrival.count)
        self._durable(arrival.sequence, done.result())

    def _marked(self, done: asyncio.Future[list[EpisodeRow]], sequence: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self._lost(done)
            return
        if not done.result():
            self._empty_marks.append(sequence)
        self._durable(sequence, done.result())

    def _lost(self, done: asyncio.Future[list[EpisodeRow]]) -> None:
        self._items -= 1
        self._segmenter = None
        error = done.exception() if not done.cancelled() else None
        if not self.served.settled_on_disk and not self.served.given.input_shape:
            self.served.input_shape, self.served.label_kind = None, None
        self.fail(error or RpcError("SERVER_NOT_READY", "the server is stopping"))

    def _durable(self, sequence: int, closed: list[EpisodeRow]) -> None:
        self._items -= 1
        self.durable = sequence
        self._acknowledge = True
        for episode in closed:
            self.served.episodes[episode.number] = episode
            self.served.open_examples -= episode.examples
            self.served.emit(events.closed(episode, self.served.ahead_of(episode)), self.stream.id)
        if closed:
            self._wake_trainer()
        if closed or self.served.watchers:
            self.served.notify()
        self.mailbox.wake()
        self._move()
