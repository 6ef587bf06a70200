"""The learners that this server owns, as the event loop knows them. What is durable is in the journal; this follows it.

Belongs to the event loop: no other thread may touch it. A model is swapped by one assignment, between two batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sharp.v1 import episode_pb2, learner_pb2
from sharp_engine import Label, LearnerConfig
from sharp_engine.config import from_dict
from sharp_server.errors import RpcError
from sharp_server.learners import events
from sharp_server.prediction.model import Model
from sharp_server.prediction.summary import layer_messages, memory_message
from sharp_server.storage.sqlite.learners import LearnerRow
from sharp_server.storage.sqlite.streams import EpisodeRow

if TYPE_CHECKING:
    from sharp_server.ingest.session import Session


_MOST_WAITING = 1000
"""Calls that may wait for a version of one learner."""


class Rate:
    """Events per second, over the last ten seconds."""

    def __init__(self) -> None:
        self._counts = [0.0] * 11
        self._second = int(time.monotonic())

    def add(self, count: float) -> None:
        """Something happened."""
        self._turn()
        self._counts[self._second % 11] += count

    def per_second(self) -> float:
        """The average."""
        self._turn()
        return sum(self._counts) / 10.0

    def _turn(self) -> None:
        now = int(time.monotonic())
        for second in range(self._second + 1, min(now, self._second + 11) + 1):
            self._counts[second % 11] = 0.0
        self._second = now


class ServedLearner:
    """One learner: its settled facts, its model, what is not learned yet, and who listens."""

    def __init__(self, row: LearnerRow) -> None:
        self.id, self.name, self.uid, self.created = row.id, row.name, row.uid, row.created
        self.given = learner_pb2.LearnerConfig.FromString(row.config)
        self.config: LearnerConfig = from_dict(json.loads(row.settings))
        self.input_shape: tuple[int, ...] | None = tuple(json.loads(row.input_shape)) if row.input_shape else None
        self.label_kind: str | None = row.label_kind
        self.settled_on_disk = row.input_shape is not None and row.label_kind is not None
        self.damaged = row.damaged
        self.model = Model()
        self.head: tuple[str, bytes] | None = None
        """Name and SHA-256 of the snapshot that holds the serving version."""
        self.known: dict[Label, int] = {}
        """Ordinals of the classes met and not forgotten."""
        self.on_disk: set[int] = set()
        """Ordinals whose class is in the journal."""
        self.next_class = row.next_class
        self.episodes: dict[int, EpisodeRow] = {}
        """Waiting and parked episodes by number."""
        self.bytes = 0
        """Taken and not learned, parked and on their way to the disk included."""
        self.open_examples = 0
        self.epoch = 0
        """Rises when something was taken out of the open episodes: segmenters begin anew."""
        self.busy = False
        """A call is restoring, changing or deleting it."""
        self.files = asyncio.Lock()
        """Held while the serving version is copied, and while a class is forgotten: no copy brings it back."""
        self.deleted = False
        self.training: EpisodeRow | None = None
        self.progress: episode_pb2.Progress | None = None
        self.phase_layers: list[dict[str, Any]] | None = None
        self.sessions: dict[int, Session] = {}
        """Open Learn calls by the row of their stream."""
        self.watchers: set[events.Mailbox] = set()
        self.room = asyncio.Event()
        """Set and cleared whenever bytes become free."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.ingested, self.trained, self.predicted = Rate(), Rate(), Rate()
        self.last_turn = 0
        self.not_before = 0.0
        """Training waits until then (monotonic), after a failure."""
        self.without_room = 0
        """Tries in a row whose outcome did not fit the disk."""

    # ---- facts --------------------------------------------------------------------------------------------------

    def waiting(self) -> list[EpisodeRow]:
        """Closed episodes that are to be learned, in order."""
        return sorted((e for e in self.episodes.values() if e.state == "waiting"), key=lambda e: e.position)

    def parked(self) -> list[EpisodeRow]:
        """Parked episodes by number."""
        return sorted((e for e in self.episodes.values() if e.state == "parked"), key=lambda e: e.number)

    def ahead_of(self, episode: EpisodeRow) -> int:
        """Episodes to be learned before this one."""
        return sum(other.position < episode.position for other in self.waiting())

    def free(self, nbytes: int) -> None:
        """Bytes are learned or deleted."""
        self.bytes -= nbytes
        self.room.set()
        self.room = asyncio.Event()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """One change at a time: another one meanwhile is refused."""
        if self.busy:
            raise RpcError("LEARNER_BUSY", "another call is changing the learner", retry=0.2)
        self.busy = True
        self.notify()
        try:
            yield
        finally:
            self.busy = False
            self.notify()

    # ---- versions -----------------------------------------------------------------------------------------------

    def swap(self, model: Model) -> None:
        """Serve another version from the next batch on."""
        self.model = model
        ready = [future for version, future in self._waiting if version <= model.version]
        self._waiting = [(version, future) for version, future in self._waiting if version > model.version]
        for future in ready:
            if not future.done():
                future.set_result(None)
        self.notify()

    async def reach(self, version: int, seconds: float) -> None:
        """Wait until a version serves."""
        if self.model.version >= version:
            return
        if len(self._waiting) >= _MOST_WAITING:
            raise RpcError("QUEUE_FULL", "too many calls wait for a version", limit=_MOST_WAITING)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (version, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await future
        except TimeoutError:
            raise RpcError(
                "VERSION_NOT_REACHED",
                f"version {version} does not serve yet",
                wanted=version,
                serving=self.model.version,
            ) from None
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def end(self) -> None:
        """The learner is deleted: whoever waits for it is told."""
        self.deleted = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(RpcError("LEARNER_NOT_FOUND", "the learner was deleted"))
        self.notify()
        self.free(0)

    # ---- listeners ----------------------------------------------------------------------------------------------

    def emit(self, event: episode_pb2.EpisodeEvent, stream: int) -> None:
        """Tell the producer of that stream and everyone who watches."""
        session = self.sessions.get(stream)
        if session is not None:
            session.mailbox.put(event)
        for mailbox in self.watchers:
            mailbox.put(event)

    def notify(self) -> None:
        """Let watchers look at the status again."""
        for mailbox in self.watchers:
            mailbox.wake()

    def status(self, limit: int, layers: bool = True) -> learner_pb2.LearnerStatus:
        """The learner at this moment."""
        waiting, model = self.waiting(), self.model
        state = learner_pb2.LEARNER_STATE_IDLE
        if self.busy:
            state = learner_pb2.LEARNER_STATE_CHANGING
        elif self.training is not None:
            state = learner_pb2.LEARNER_STATE_TRAINING
        elif waiting:
            state = learner_pb2.LEARNER_STATE_WAITING
        lagging = sum(episode.examples for episode in waiting)
        now = time.time()
        status = learner_pb2.LearnerStatus(
            time=events.timestamp(now),
            state=state,
            model_version=model.version,
            episodes_learned=model.episodes,
            layers=layer_messages(self.phase_layers or model.figures.get("layers", ())) if layers else (),
            memories=memory_message(model.figures["memories"]) if model.figures else None,
            backlog=learner_pb2.Backlog(
                examples=self.open_examples + lagging,
                bytes=max(0, self.bytes),
                bytes_limit=limit,
                episodes_waiting=len(waiting),
                episodes_parked=len(self.episodes) - len(waiting),
                streams=len(self.sessions),
                lag_examples=lagging,
                lag=events.duration(max(0.0, now - min(e.closed for e in waiting))) if waiting else None,
            ),
            throughput=learner_pb2.Throughput(
                examples_ingested_per_second=self.ingested.per_second(),
                examples_trained_per_second=self.trained.per_second(),
                examples_predicted_per_second=self.predicted.per_second(),
            ),
            damaged_snapshots=self.damaged,
        )
        if self.training is not None:
            status.training_episode = self.training.number
            if self.progress is not None:
                status.progress.CopyFrom(self.progress)
        return status


class Registry:
    """All learners by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, ServedLearner] = {}

    def __iter__(self) -> Iterator[ServedLearner]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, served: ServedLearner) -> None:
        """Take in a learner."""
        self._by_name[served.name] = served

    def remove(self, served: ServedLearner) -> None:
        """Let go of a learner."""
        self._by_name.pop(served.name, None)

    def find(self, name: str) -> ServedLearner | None:
        """A learner, if there is one of that name."""
        return self._by_name.get(name)

    def get(self, name: str) -> ServedLearner:
        """A learner, or the refusal."""
        served = self._by_name.get(name)
        if served is None:
            raise RpcError("LEARNER_NOT_FOUND", f"there is no learner {name[:80]!r}", learner=name)
        return served
