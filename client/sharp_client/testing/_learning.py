"""The Learn call of the fake: one request in, some answers out, in the order that `learning.proto` fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharp.v1 import episode_pb2, learning_pb2

from .._errors import InvalidArgumentError, UnavailableError
from .._reasons import (
    BoundariesMismatchError,
    FieldInvalidError,
    LearnerNotFoundError,
    SequenceGapError,
    StreamTakenOverError,
    UnexpectedMessageError,
)
from ._examples import read_labelled
from ._learner import Episode, FakeLearner, FakeStream, check_agrees
from ._refusals import refuse

if TYPE_CHECKING:
    from ._server import FakeServer


def _events(events: list[episode_pb2.EpisodeEvent]) -> list[learning_pb2.LearnResponse]:
    return [learning_pb2.LearnResponse(event=event) for event in events]


class LearnCall:
    """One call of Learn."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._learner: FakeLearner | None = None
        self._stream: FakeStream | None = None
        self._made = False

    def handle(self, request: learning_pb2.LearnRequest) -> list[learning_pb2.LearnResponse]:
        """Handle one message; raises what ends the call."""
        fault = self._server.next_learn_fault()
        if fault == "lost":
            raise UnavailableError("the connection was lost", code="UNAVAILABLE", retryable=True)
        kind = request.WhichOneof("message")
        if kind is None:
            raise refuse(FieldInvalidError, "the message is empty", field="message")
        if (kind == "open") != (self._stream is None):
            expected = "open" if self._stream is None else "batch or end_episode"
            raise refuse(UnexpectedMessageError, f"{kind} is not expected here", expected=expected, found=kind)
        if kind == "open":
            answers = self._open(request.open)
        else:
            answers = self._take_or_unmake(request)
        if fault == "answer lost":
            raise UnavailableError("the connection was lost", code="UNAVAILABLE", retryable=True)
        self._server.changed()
        return answers

    def _open(self, opening: learning_pb2.Open) -> list[learning_pb2.LearnResponse]:
        learner = self._server.learners.get(opening.learner)
        if learner is None:
            if not opening.create_if_missing:
                raise refuse(LearnerNotFoundError, f"no learner {opening.learner!r}", learner=opening.learner)
            learner = self._server.create(opening.learner, opening.config)
            self._made = True
        elif opening.create_if_missing:
            check_agrees(learner, opening.config)
        boundaries = opening.boundaries or learning_pb2.BOUNDARIES_EXPLICIT
        stream = learner.streams.setdefault(opening.stream_id, FakeStream(boundaries))
        if stream.boundaries != boundaries:
            raise refuse(BoundariesMismatchError, "other boundaries", expected=stream.boundaries, found=boundaries)
        stream.owner = self
        self._learner, self._stream, self._stream_id = learner, stream, opening.stream_id
        opened = learning_pb2.Opened(
            learner_uid=learner.uid,
            last_durable_sequence=stream.last_sequence,
            open_examples=len(stream.open.y) if stream.open else 0,
            boundaries=boundaries,
            model_version=learner.model_version,
            input_shape=learner.input_shape,
            label_kind=learner.label_kind,
            unlearned_bytes_limit=2**30,
            message_bytes_limit=self._server.message_bytes_limit,
            batch_examples_limit=self._server.batch_examples_limit,
        )
        answers = [learning_pb2.LearnResponse(opened=opened)]
        if opening.HasField("replay_after_sequence"):
            answers += self._replay(stream, opening.replay_after_sequence)
        return answers

    def _replay(self, stream: FakeStream, after: int) -> list[learning_pb2.LearnResponse]:
        """What became of earlier episodes and marks: closed and latest outcome of each, then the Ack that ends it."""
        replayed: dict[int, dict[str, episode_pb2.EpisodeEvent]] = {}
        for event in stream.history:
            kind = event.WhichOneof("event")
            if kind == "closed" and event.closed.last_sequence > after:
                replayed[event.episode] = {"closed": event}
            elif kind in ("learned", "parked", "discarded") and event.episode in replayed:
                replayed[event.episode]["outcome"] = event
        events = [event for episode in replayed.values() for event in episode.values()]
        ack = learning_pb2.Ack(
            sequence=stream.last_sequence,
            empty_marks=[mark for mark in stream.empty_marks if mark > after],
            examples_durable=self._learner.examples_durable if self._learner is not None else 0,
        )
        return [*_events(events), learning_pb2.LearnResponse(ack=ack)]

    def _take_or_unmake(self, request: learning_pb2.LearnRequest) -> list[learning_pb2.LearnResponse]:
        """Take a request; a learner that was made for a call that comes to nothing goes with it."""
        try:
            return self._take(request)
        except InvalidArgumentError:
            if self._made and self._learner is not None and self._learner.untouched:
                self._server.learners.pop(self._learner.name, None)
            raise

    def _take(self, request: learning_pb2.LearnRequest) -> list[learning_pb2.LearnResponse]:
        learner, stream = self._learner, self._stream
        assert learner is not None and stream is not None
        if self._server.learners.get(learner.name) is not learner:
            raise refuse(LearnerNotFoundError, f"the learner {learner.name!r} was deleted", learner=learner.name)
        if stream.owner is not self:
            raise refuse(StreamTakenOverError, "another call opened this stream")
        is_batch = request.HasField("batch")
        sequence = request.batch.sequence if is_batch else request.end_episode.sequence
        expected = stream.last_sequence + 1
        if sequence > expected:
            raise refuse(SequenceGapError, f"{expected} is missing", expected=expected, found=sequence)
        events: list[episode_pb2.EpisodeEvent] = []
        empty_marks: list[int] = []
        if sequence == expected:
            if is_batch:
                events = self._store(learner, stream, request.batch)
            else:
                events = learner.close_episode(stream, sequence, episode_pb2.CLOSED_BY_MARK)
                empty_marks = [] if events else [sequence]
            stream.empty_marks += empty_marks
            stream.last_sequence = sequence
        closed = [event for event in events if event.HasField("closed")]
        later = [event for event in events if not event.HasField("closed")]
        ack = learning_pb2.Ack(
            sequence=stream.last_sequence, empty_marks=empty_marks, examples_durable=learner.examples_durable
        )
        return [*_events(closed), learning_pb2.LearnResponse(ack=ack), *_events(later)]

    def _store(
        self, learner: FakeLearner, stream: FakeStream, batch: learning_pb2.Batch
    ) -> list[episode_pb2.EpisodeEvent]:
        x, labels, kind = read_labelled(batch.inputs, batch.labels, learner, self._server.batch_examples_limit)
        learner.input_shape, learner.label_kind = list(x.shape[1:]), kind
        events: list[episode_pb2.EpisodeEvent] = []
        is_automatic = stream.boundaries == learning_pb2.BOUNDARIES_AUTOMATIC
        if is_automatic and stream.open is not None and not set(stream.open.y) & set(labels):
            # A batch of other classes only: the stream has changed.
            events = learner.close_episode(stream, batch.sequence - 1, episode_pb2.CLOSED_BY_CUT)
        if stream.open is None:
            stream.open = Episode([], [], self._stream_id, batch.sequence)
        stream.open.x.append(x)
        stream.open.y += labels
        learner.meet(labels)
        return events
