"""One learner as the event loop knows it: what serves, what waits, who listens. What is durable is in the journal.

Belongs to the event loop: no other thread may change it. Whoever wants something changed calls a method, which keeps
the parts in agreement; a model is swapped by one assignment, between two batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Protocol

from sharp.v1 import episode_pb2, learner_pb2
from sharp_engine import Label, LearnerConfig
from sharp_engine.config import from_dict
from sharp_server.errors import RpcError
from sharp_server.learners import events
from sharp_server.learners.backlog import Backlog
from sharp_server.learners.class_ordinals import ClassOrdinals
from sharp_server.learners.event_log import EventLog
from sharp_server.learners.inputs import InputSpec
from sharp_server.learners.mailbox import Mailbox
from sharp_server.learners.settings import teaching_refusal
from sharp_server.learners.version_waiters import VersionWaiters
from sharp_server.prediction.model import Model
from sharp_server.prediction.summary import LayerSummary
from sharp_server.runtime.answer_histograms import AnswerHistograms
from sharp_server.runtime.rate import Rate
from sharp_server.storage.records import EpisodeRow, LearnerRow
from sharp_server.training.protocol import PhaseDone, Progressed, Started


class Producer(Protocol):
    """The other end of an open Learn call."""

    @property
    def mailbox(self) -> Mailbox:
        """Where its events wait."""
        ...

    def fail(self, fault: BaseException) -> None:
        """End the call."""
        ...


class ServedLearner:
    """One learner: its fixed facts, its model, what is not learned yet, and who listens."""

    def __init__(self, row: LearnerRow) -> None:
        self.id, self.name, self.uid, self.created = row.id, row.name, row.uid, row.created
        self.row = row
        """As it was when it was taken up."""
        self.given = learner_pb2.LearnerConfig.FromString(row.config)
        """The configuration as its creator wrote it."""
        self.config: LearnerConfig = from_dict(json.loads(row.settings))
        self._classes = ClassOrdinals(row.next_class)
        self.backlog = Backlog()
        self.ingested, self.trained, self.predicted = Rate(), Rate(), Rate()
        self.event_log = EventLog()
        self.answers = AnswerHistograms()
        self.files = asyncio.Lock()
        """Held while the serving version is copied, and while a class is forgotten: no copy brings it back."""
        self._input_shape: tuple[int, ...] | None = tuple(json.loads(row.input_shape)) if row.input_shape else None
        self._input_spec = InputSpec.of(self.config.architecture, self._input_shape)
        self._label_kind = row.label_kind
        self._inputs_durable = row.input_shape is not None and row.label_kind is not None
        self._damaged = row.damaged
        self._model = Model()
        self._head: tuple[str, bytes] | None = None
        self._segmentation_epoch = 0
        self._changing = False
        self._gone: RpcError | None = None
        self._revision = 0
        self._episode: EpisodeRow | None = None
        self._progress: episode_pb2.Progress | None = None
        self._phase_layers: tuple[LayerSummary, ...] | None = None
        self._producers: dict[int, Producer] = {}
        self._watchers: set[Mailbox] = set()
        self._version_waiters = VersionWaiters()
        self._example_waiters = VersionWaiters()
        self._examples_durable = row.examples
        self._lesson_examples = 0
        """Durable and not known yet."""
        self._examples_known = 0
        self._consolidating = asyncio.Lock()

    # ---- inputs -----------------------------------------------------------------------------------------------------

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Of one example; absent until it is fixed."""
        return self._input_shape

    @property
    def input_spec(self) -> InputSpec:
        """What it takes."""
        if self._input_spec.shape != self._input_shape:
            self._input_spec = InputSpec.of(self.config.architecture, self._input_shape)
        return self._input_spec

    @property
    def label_kind(self) -> str | None:
        """`text` or `integer`; absent until it is fixed."""
        return self._label_kind

    @property
    def inputs_durable(self) -> bool:
        """Whether both are in the journal."""
        return self._inputs_durable

    def fix_inputs(self, shape: tuple[int, ...], kind: str | None) -> None:
        """Fix both, as far as they are not: by a batch on its way to the disk, or by a snapshot."""
        self._input_shape, self._label_kind = shape, self._label_kind or kind

    def inputs_are_durable(self) -> None:
        """Both are in the journal."""
        self._inputs_durable = self._input_shape is not None and self._label_kind is not None

    def unfix_inputs(self) -> None:
        """The batch that would have fixed them did not reach the disk."""
        if not self._inputs_durable and not self.given.input_shape:
            self._input_shape, self._label_kind = None, self.row.label_kind

    @property
    def classes(self) -> ClassOrdinals:
        """The classes met and not forgotten, by their numbers."""
        return self._classes

    def labels_by_ordinal(self) -> dict[int, Label]:
        """The same the other way round."""
        return self._classes.by_ordinal()

    def reload_classes(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Know the classes (ordinal, label as JSON) that the journal has, and those on their way there; no others."""
        self._classes.reload(pairs)

    @property
    def segmentation_epoch(self) -> int:
        """Rises when something was taken out of the open episodes: segmenters begin anew."""
        return self._segmentation_epoch

    def forget_class(self, label: Label) -> int | None:
        """A class is about to leave the journal: batches after it bring a new one. Gives the ordinal it had."""
        self._segmentation_epoch += 1
        self.event_log.clear()
        return self._classes.forget(label)

    def relabel_class(self, old: Label, new: Label, merge: bool) -> None:
        """A class is about to be renamed or merged in the journal: batches after it go by the new names."""
        self._segmentation_epoch += 1
        self._classes.relabel(old, new, merge)

    # ---- versions ---------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The version that serves."""
        return self._model

    @property
    def head(self) -> tuple[str, bytes] | None:
        """Name and SHA-256 of the snapshot that holds it."""
        return self._head

    def serve(self, model: Model, head: tuple[str, bytes] | None) -> None:
        """Answer with another version from the next batch on; no head: it could not be kept on disk."""
        self._model = model
        self._head = head or self._head
        self._version_waiters.reached(model.version)
        self._example_waiters.reached(self.examples_known)
        self.notify()

    def serve_taught(self, model: Model) -> None:
        """Answer with this from the next batch on: the same version, and more known beyond it."""
        self._model = model
        self._example_waiters.reached(self.examples_known)
        if self._watchers:
            self.notify()

    async def reach(self, version: int, seconds: float) -> None:
        """Wait until a version serves."""
        if self._model.version < version:
            try:
                await self._version_waiters.wait(version, seconds)
            except TimeoutError:
                message, serving = f"version {version} does not serve yet", self._model.version
                raise RpcError("VERSION_NOT_REACHED", message, wanted=version, serving=serving) from None

    # ---- examples that are known ------------------------------------------------------------------------------------

    @property
    def can_be_taught(self) -> bool:
        """Whether examples can count before their episode is learned: it has a learned metric and stable features."""
        return teaching_refusal(self.config, self._input_shape, self._model.episodes) is None

    @property
    def unlearned_examples(self) -> int:
        """Durable examples of batches that are to be learned."""
        return self.backlog.examples

    @property
    def examples_durable(self) -> int:
        """Examples that ever arrived."""
        return self._examples_durable

    @property
    def uncounted_examples(self) -> int:
        """Durable examples that answers don't know yet."""
        return max(0, self.backlog.examples - self._model.batch_examples) + self._lesson_examples

    @property
    def examples_known(self) -> int:
        """Examples that ever arrived and were taken into account; never falls while the server runs."""
        self._examples_known = max(self._examples_known, self._examples_durable - self.uncounted_examples)
        return self._examples_known

    def examples_arrived(self, examples: int) -> None:
        """Examples of a batch are durable."""
        self.backlog.arrived(examples)
        self.ingested.add(examples)
        self._examples_durable += examples

    def lesson_arrived(self, examples: int) -> None:
        """A lesson is durable, and not known yet."""
        self.ingested.add(examples)
        self._examples_durable += examples
        self._lesson_examples += examples

    def lesson_known(self, examples: int) -> None:
        """It is known now, or could not be taught."""
        self._lesson_examples -= examples
        self._example_waiters.reached(self.examples_known)

    def keep_lessons(self, lessons: int, nbytes: int) -> None:
        """So many lessons are no part of a version, and take so many bytes."""
        self.backlog.keep_lessons(lessons, nbytes)

    async def reach_examples(self, examples: int, seconds: float) -> None:
        """Wait until so many examples are known."""
        if self.examples_known < examples:
            try:
                await self._example_waiters.wait(examples, seconds)
            except TimeoutError:
                message, known = f"fewer than {examples} examples are known yet", self.examples_known
                raise RpcError("EXAMPLES_NOT_REACHED", message, wanted=examples, known=known) from None

    @property
    def damaged_snapshots(self) -> int:
        """Snapshots of it that were found damaged."""
        return self._damaged

    def found_damaged(self) -> None:
        """A snapshot was found damaged."""
        self._damaged += 1
        self.notify()

    @property
    def untouched(self) -> bool:
        """Whether nothing ever came of it, and nobody is about to change that."""
        nothing_came = not self._inputs_durable and not self.backlog.bytes and not self._classes.by_ordinal()
        return nothing_came and not (self._model.version or self._producers or self._changing or self._gone)

    # ---- changes ----------------------------------------------------------------------------------------------------

    @property
    def changing(self) -> bool:
        """Whether a call is restoring, changing or deleting it."""
        return self._changing

    @property
    def deleted(self) -> bool:
        """Whether it is no more, on this server at least."""
        return self._gone is not None

    @property
    def farewell(self) -> RpcError:
        """What whoever still asks for it hears."""
        return self._gone or RpcError("LEARNER_NOT_FOUND", "the learner was deleted", learner=self.name)

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """One change at a time: another one meanwhile is refused."""
        if self._changing:
            raise RpcError("LEARNER_BUSY", "another call is changing the learner", retry=0.2)
        self._changing = True
        self.notify()
        try:
            yield
        finally:
            self._changing = False
            self.notify()

    def delete(self) -> None:
        """It is gone from the journal: everyone who waits for it or listens hears so."""
        farewell = self.farewell
        self._gone = farewell
        for episode in self.backlog.episodes():
            self.emit(events.discarded(episode, "deleted"), episode.stream)
        self.backlog.clear()
        self._say_farewell(farewell)

    def leave(self, farewell: RpcError) -> None:
        """It goes on elsewhere: everyone who waits for it or listens hears so. Predictions may go on as it is."""
        self._gone = farewell
        self._say_farewell(farewell)

    def _say_farewell(self, farewell: RpcError) -> None:
        self.end_producers(farewell)
        for waiters in (self._version_waiters, self._example_waiters):
            waiters.fail(farewell)
        self.notify()

    # ---- training ---------------------------------------------------------------------------------------------------

    @property
    def episode(self) -> EpisodeRow | None:
        """The episode that the trainer is at."""
        return self._episode

    @property
    def progress(self) -> episode_pb2.Progress | None:
        """How far it is."""
        return self._progress

    @property
    def layers(self) -> tuple[LayerSummary, ...]:
        """Its layers: as the last finished phase left them, while it is being trained."""
        if self._phase_layers is not None:
            return self._phase_layers
        return self._model.summary.layers if self._model.summary is not None else ()

    def next_episode(self) -> EpisodeRow | None:
        """The episode to be learned next; none while it is being changed or deleted."""
        busy = self._changing or self._gone is not None or self._consolidating.locked()
        return None if busy else self.backlog.next()

    @contextlib.asynccontextmanager
    async def consolidating(self) -> AsyncIterator[bool]:
        """Lessons are made a version, unless the learner is being changed or trained, or soon will be: then False."""
        async with self._consolidating:
            yield not (
                self._changing or self._gone is not None or self._episode is not None or self.backlog.next() is not None
            )

    async def until_consolidated(self) -> None:
        """Until lessons that are being made a version are one."""
        async with self._consolidating:
            pass

    def begin_turn(self, episode: EpisodeRow) -> None:
        """The trainer turns to an episode."""
        self._episode = episode
        self.notify()

    def follow_turn(self, report: Started | Progressed | PhaseDone, attempts: int) -> None:
        """The trainer got on with it."""
        episode = self._episode
        if episode is None:
            return
        if isinstance(report, Started):
            self.emit(events.started(episode, attempts, report.phase, report.phases), episode.stream)
        elif isinstance(report, PhaseDone):
            self._phase_layers = report.layers
        else:
            self._progress = events.progress_message(report)
            self.trained.add(report.examples)
            self.emit(events.progressed(episode, self._progress), episode.stream)
        self.notify()

    def end_turn(self) -> None:
        """The trainer turns to something else."""
        self._episode = self._progress = self._phase_layers = None
        self.notify()

    def update_episode(self, episode: EpisodeRow) -> None:
        """An episode is now this in the journal; whoever listens hears it if its fate is decided."""
        self.backlog.update(episode)  # before the event: a producer leaves when none of its episodes is left
        if self._episode is not None and self._episode.id == episode.id:
            self._episode = episode
        self._example_waiters.reached(self.examples_known)
        outcome = events.outcome(episode)
        if outcome is not None:
            self.emit(outcome, episode.stream)
        self.notify()

    def release(self, nbytes: int) -> None:
        """Bytes are learned."""
        self.backlog.release(nbytes)

    # ---- listeners --------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> int:
        """Open Learn calls."""
        return len(self._producers)

    def attach(self, stream: int, producer: Producer) -> Producer | None:
        """A Learn call is open; gives the one whose place it takes."""
        before = self._producers.get(stream)
        self._producers[stream] = producer
        return before

    def take_off(self, stream: int) -> Producer | None:
        """Let go of the call on a stream, if there is one."""
        return self._producers.pop(stream, None)

    def detach(self, stream: int, producer: Producer) -> None:
        """A Learn call is over."""
        if self._producers.get(stream) is producer:
            del self._producers[stream]
        self.notify()

    def end_producers(self, fault: BaseException) -> None:
        """End every open Learn call."""
        for producer in list(self._producers.values()):
            producer.fail(fault)

    @property
    def watched(self) -> bool:
        """Whether anybody watches it."""
        return bool(self._watchers)

    @contextlib.contextmanager
    def watch(self, mailbox: Mailbox) -> Iterator[None]:
        """Hear all events, and be woken by every change of the status."""
        self._watchers.add(mailbox)
        try:
            yield
        finally:
            self._watchers.discard(mailbox)

    def emit(self, event: episode_pb2.EpisodeEvent, stream: int) -> None:
        """Send an event to the producer of that stream and to everyone who watches."""
        self.event_log.add(event)
        producer = self._producers.get(stream)
        if producer is not None:
            producer.mailbox.put(event)
        for mailbox in self._watchers:
            mailbox.put(event)

    @property
    def revision(self) -> int:
        """Rises with every change of the status: what was written of an older one is out of date."""
        return self._revision

    def notify(self) -> None:
        """Let watchers look at the status again."""
        self._revision += 1
        for mailbox in self._watchers:
            mailbox.wake()
