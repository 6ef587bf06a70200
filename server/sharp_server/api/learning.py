"""The Learning service: opens streams, hands them to a session each, lets one call per stream live; takes lessons."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc

from sharp.v1 import episode_pb2, learner_pb2, learning_pb2_grpc
from sharp.v1 import learning_pb2 as pb
from sharp_server.api.decode import InputDecoder, labels_of
from sharp_server.api.errors import CODES
from sharp_server.config.model import LimitsConfig
from sharp_server.errors import RpcError
from sharp_server.ingest.session import LearnSession, SessionTools
from sharp_server.learners import events
from sharp_server.learners.lessons import Lessons
from sharp_server.learners.lifecycle import Lifecycle
from sharp_server.learners.messages import labels_message
from sharp_server.learners.names import learner_name, stream_id
from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner
from sharp_server.learners.settings import KIND_MESSAGES
from sharp_server.runtime.server_state import ServerState
from sharp_server.storage.interface import Storage

_BOUNDARIES = {0: "EXPLICIT", 1: "EXPLICIT", 2: "AUTOMATIC"}
_MOST_REPLAYED = 1000
_BAD_REQUEST = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
"""Codes of what can't be learned as it is, however often it is tried."""


class LearningService(learning_pb2_grpc.LearningServicer):
    """Serves `sharp.v1.Learning`."""

    def __init__(
        self,
        limits: LimitsConfig,
        state: ServerState,
        registry: Registry,
        lifecycle: Lifecycle,
        storage: Storage,
        tools: SessionTools,
        lessons: Lessons,
        decoder: InputDecoder,
    ) -> None:
        self._limits, self._state, self._registry = limits, state, registry
        self._lifecycle, self._storage, self._tools = lifecycle, storage, tools
        self._lessons, self._decoder = lessons, decoder

    async def Learn(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Teach one learner over one stream."""
        first = await self._state.unless_stopping(context.read())
        if first is grpc.aio.EOF:
            return
        if first.WhichOneof("message") != "open":
            found = first.WhichOneof("message") or "nothing"
            raise RpcError("UNEXPECTED_MESSAGE", "the first message must be open", expected="open", found=found)
        opening = first.open
        served, session, made = await self._state.finish(self._open(opening))
        # Here and not in `_open`: a call that was given up while it was opened leaves no session behind.
        other = served.attach(session.stream.id, session)
        if other is not None:
            other.fail(_taken_over())
        try:
            await context.write(pb.LearnResponse(opened=self._opened(served, session)))
            if opening.HasField("replay_after_sequence"):
                for answer in await self._replay(served, session, opening.replay_after_sequence):
                    await context.write(answer)

            async def read() -> pb.LearnRequest | None:
                request = await context.read()
                return None if request is grpc.aio.EOF else request

            listening = asyncio.create_task(session.listen(read))
            try:
                await session.answer(context.write)
            finally:
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening
        except RpcError as refusal:
            served.detach(session.stream.id, session)
            await self._state.finish(self._unmake(served, made, refusal))
            raise
        finally:
            served.detach(session.stream.id, session)

    async def Teach(self, request: pb.TeachRequest, context: Any) -> pb.TeachResponse:  # noqa: N802
        """Teach a few labelled examples at once."""
        return await self._state.finish(self._teach(request))

    async def _teach(self, request: pb.TeachRequest) -> pb.TeachResponse:
        name = learner_name(request.learner, "learner")
        lesson = stream_id(request.request_id, "request_id", "a request id")
        served, made = await self._find(name, request.create_if_missing)
        try:
            self._lessons.check(served)
            examples = await self._decoder.examples(request.inputs, served.input_spec)
            labels = labels_of(request.labels, served.label_kind, len(examples.x), "labels")
            taught = await self._lessons.teach(served, lesson, examples, labels)
        except RpcError as refusal:
            await self._unmake(served, made, refusal)
            raise
        return pb.TeachResponse(
            model_version=taught.version,
            examples_beyond_version=taught.examples_beyond_version,
            examples_known=taught.examples_known,
            examples=taught.examples,
            new_classes=labels_message(taught.new_classes),
            corrections=taught.corrections,
            repetition=taught.repetition,
        )

    async def _find(
        self, name: str, create_if_missing: bool, config: learner_pb2.LearnerConfig | None = None
    ) -> tuple[ServedLearner, bool]:
        """The learner, and whether this call made it."""
        missing = self._registry.find(name) is None
        if create_if_missing:
            return await self._lifecycle.create_if_missing(name, config), missing
        return self._registry.get(name), False

    async def _unmake(self, served: ServedLearner, made: bool, refusal: RpcError) -> None:
        """Delete a learner that was made for a call that came to nothing."""
        if made and served.untouched and CODES[refusal.reason] in _BAD_REQUEST:
            await self._lifecycle.delete(served)

    async def _open(self, opening: pb.Open) -> tuple[ServedLearner, LearnSession, bool]:
        """The learner, the stream, and whether this call made the learner."""
        name = learner_name(opening.learner, "open.learner")
        stream_name = stream_id(opening.stream_id, "open.stream_id")
        for field, value in (("boundaries", opening.boundaries), ("backpressure", opening.backpressure)):
            if not 0 <= value <= 2:
                raise RpcError("FIELD_INVALID", f"unknown {field}", fields=(f"open.{field}",), field=f"open.{field}")
        served, missing = await self._find(name, opening.create_if_missing, opening.config)
        boundaries = _BOUNDARIES[opening.boundaries]
        row = await self._storage.open_stream(served.id, stream_name, boundaries)
        if served.deleted:
            raise served.farewell
        before = served.take_off(row.id)
        if before is not None:
            # What it has under way is written first: only then is the last durable number known.
            before.fail(_taken_over())
            row = await self._storage.open_stream(served.id, stream_name, boundaries)
        return served, LearnSession(served, row, opening.backpressure == pb.BACKPRESSURE_FAIL, self._tools), missing

    def _opened(self, served: ServedLearner, session: LearnSession) -> pb.Opened:
        limits = self._limits
        return pb.Opened(
            learner_uid=served.uid,
            last_durable_sequence=session.durable,
            open_examples=session.stream.open_examples,
            boundaries=pb.Boundaries.Value(f"BOUNDARIES_{session.stream.boundaries}"),
            model_version=served.model.version,
            input_shape=served.input_shape or (),
            label_kind=KIND_MESSAGES[served.label_kind],
            unlearned_bytes=served.backlog.bytes,
            unlearned_bytes_limit=limits.unlearned_bytes,
            message_bytes_limit=limits.message_bytes,
            batch_examples_limit=limits.batch_examples,
        )

    async def _replay(self, served: ServedLearner, session: LearnSession, after: int) -> list[pb.LearnResponse]:
        """What became of earlier episodes and marks of this stream, and the Ack that ends the replay."""
        # What is in the mailbox by now is in the journal too, and what comes into it later is not sent twice.
        session.mailbox.take()
        past: list[episode_pb2.EpisodeEvent] = []
        for episode in await self._storage.episodes_of_stream(session.stream.id, after, _MOST_REPLAYED):
            ahead = served.backlog.ahead_of(episode) if episode.state == "waiting" else 0
            past.append(events.closed(episode, ahead))
            outcome = events.outcome(episode)
            # A version is in the journal a moment before it serves: until it does, nobody hears that it is learned.
            if outcome is not None and episode.version <= served.model.version:
                past.append(outcome)
        empty_marks = await self._storage.empty_marks(session.stream.id, after, _MOST_REPLAYED)
        answers = [pb.LearnResponse(event=event) for event in past]
        return [*answers, session.acknowledgement(session.durable, empty_marks)]


def _taken_over() -> RpcError:
    return RpcError("STREAM_TAKEN_OVER", "another call opened this stream")
