"""Who uses the server: producers, teachers, an app and an operator. Each does what a careful client would.

What they were promised (acknowledged, answered, forgotten) they write down in `Records`; nobody judges here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from reliability.simulation.plan import FEATURES, FORGETTABLE, Labelled, Plan, StreamPlan, batch, lesson
from reliability.simulation.server import LearnCall, Network, RefusedError, UnavailableError
from reliability.simulation.world import World
from sharp.v1 import (
    class_admin_pb2,
    label_pb2,
    learner_admin_pb2,
    learning_pb2,
    parked_pb2,
    prediction_pb2,
    snapshot_pb2,
    tensor_pb2,
)

_LATER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED)
PROBES = np.random.default_rng(0).random((5, FEATURES), np.float32)


@dataclass(frozen=True)
class Answer:
    """One answer to the probes."""

    learner: str
    version: int
    beyond: int
    labels: tuple[str, ...]
    figures: tuple[float, ...]
    """Distances and shares."""


@dataclass
class Records:
    """What clients were told."""

    acknowledged: dict[tuple[str, str], int] = field(default_factory=dict)
    """Learner and stream → number."""
    taught: set[tuple[str, str]] = field(default_factory=set)
    """Learner and request id."""
    answers: list[tuple[Answer, float, int]] = field(default_factory=list)
    """In order, with the moment of the question and the newest note of the journal at that of the answer."""
    forgotten: list[tuple[str, float, int]] = field(default_factory=list)
    """Learner, with the moment of the answer and the newest note of the journal then."""
    problems: list[str] = field(default_factory=list)
    """What should not have happened, seen from outside."""


def inputs(x: Any) -> tensor_pb2.Inputs:
    """Examples for the wire."""
    return tensor_pb2.Inputs(
        tensor=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=x.shape, data=np.ascontiguousarray(x).tobytes())
    )


def _labels(given: Labelled) -> label_pb2.Labels:
    return label_pb2.Labels(texts=label_pb2.TextLabels(values=given.labels))


class Actor:
    """Somebody with a chance of their own."""

    def __init__(self, world: World, network: Network, plan: Plan, records: Records, name: str) -> None:
        self.world, self.network, self.plan, self.records = world, network, plan, records
        self.chance = random.Random(f"{name} {plan.seed}")

    async def pause(self, longest: float) -> None:
        """Do something else for a while."""
        await asyncio.sleep(self.chance.uniform(0.0, longest))

    def refused(self, error: RefusedError) -> bool:
        """Whether to come again; a fault of the server is written down."""
        if error.code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            self.records.problems.append(f"{type(self).__name__} met a fault: {error}")
        return error.code in _LATER

    async def persist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until there is an answer; None: it was refused for good."""
        while True:
            try:
                return await call()
            except UnavailableError:
                await self.pause(0.5)
            except RefusedError as error:
                if not self.refused(error):
                    return None
                await self.pause(1.0)


class Producer(Actor):
    """Sends a stream, and comes back until all of it is acknowledged."""

    def __init__(self, world: World, network: Network, plan: Plan, records: Records, stream: StreamPlan) -> None:
        super().__init__(world, network, plan, records, f"producer {stream.learner} {stream.name}")
        self.stream, self.cuts = stream, stream.cuts

    async def work(self) -> None:
        """Until the last number is acknowledged."""
        key = (self.stream.learner, self.stream.name)
        await self.pause(self.plan.seconds / 4)
        while self.records.acknowledged.get(key, 0) < self.stream.last:
            try:
                await self._send()
            except UnavailableError:
                await self.pause(0.5)
            except RefusedError as error:
                if not self.refused(error):
                    self.records.problems.append(f"a stream was refused for good: {error}")
                    return
                await self.pause(1.0)

    async def _send(self) -> None:
        call = LearnCall(self.world, await self.network.there())
        opening = learning_pb2.Open(learner=self.stream.learner, stream_id=self.stream.name)
        call.send(learning_pb2.LearnRequest(open=opening))
        opened = (await call.receive()).opened
        key = (self.stream.learner, self.stream.name)
        if opened.last_durable_sequence < self.records.acknowledged.get(key, 0):
            self.records.problems.append(
                f"{key}: {self.records.acknowledged[key]} was acknowledged, {opened.last_durable_sequence} is durable"
            )
        self._acknowledged(opened.last_durable_sequence)
        sending = asyncio.create_task(self._batches(call, opened.last_durable_sequence))
        cut = asyncio.create_task(asyncio.sleep(self.chance.uniform(0.0, 2.0))) if self.cuts else None
        try:
            while self.records.acknowledged.get(key, 0) < self.stream.last:
                receiving = asyncio.create_task(call.receive())
                waits = {receiving, cut} if cut is not None else {receiving}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    self.cuts -= 1
                    call.leave()
                    return
                answer = receiving.result()
                if answer.HasField("ack"):
                    self._acknowledged(answer.ack.sequence)
            if self.chance.random() < 0.5:
                call.half_close()
            else:
                call.leave()
        finally:
            sending.cancel()
            if cut is not None:
                cut.cancel()

    def _acknowledged(self, sequence: int) -> None:
        key = (self.stream.learner, self.stream.name)
        self.records.acknowledged[key] = max(sequence, self.records.acknowledged.get(key, 0))

    async def _batches(self, call: LearnCall, durable: int) -> None:
        learner, name, last = self.stream.learner, self.stream.name, self.stream.last
        first = max(1, durable + 1 - self.chance.choice((0, 0, 1)))  # some send more often than they need to
        for sequence in range(first, last + 1):
            if sequence in self.stream.marks:
                mark = learning_pb2.EndEpisode(sequence=sequence)
                call.send(learning_pb2.LearnRequest(end_episode=mark))
            else:
                given = batch(self.plan.seed, learner, name, sequence)
                message = learning_pb2.Batch(sequence=sequence, inputs=inputs(given.x), labels=_labels(given))
                call.send(learning_pb2.LearnRequest(batch=message))
            await self.pause(self.chance.choice((0.0, 0.1, self.plan.seconds / 10)))


class Teacher(Actor):
    """Teaches lessons, one after the other or at the same time, each as often as it takes."""

    def __init__(self, world: World, network: Network, plan: Plan, records: Records, learner: str) -> None:
        super().__init__(world, network, plan, records, f"teacher {learner}")
        self.learner = learner

    async def work(self) -> None:
        """Until every lesson was answered."""
        together: list[asyncio.Task[None]] = []
        for number in range(self.plan.lessons[self.learner]):
            await self.pause(self.chance.choice((0.0, 0.2, self.plan.seconds / 4)))
            together.append(asyncio.create_task(self.teach(f"lesson-{number}")))
            if self.chance.random() < 0.5:
                await together[-1]
        await asyncio.gather(*together)

    async def teach(self, request_id: str) -> None:
        """One lesson."""
        given = lesson(self.plan.seed, self.learner, request_id)
        request = learning_pb2.TeachRequest(
            learner=self.learner, request_id=request_id, inputs=inputs(given.x), labels=_labels(given)
        )

        def call() -> Awaitable[Any]:
            patience = self.chance.choice((None, None, 0.5))
            return self.network.call(lambda parts: parts.learning.Teach(request, None), patience)

        if await self.persist(call) is None:
            self.records.problems.append(f"{request_id} was refused for good")
            return
        self.records.taught.add((self.learner, request_id))


class App(Actor):
    """Asks about the same examples again and again."""

    async def work(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.pause(self.plan.seconds / 8)
            learner = self.chance.choice(self.plan.learners)
            try:
                await self.ask(learner)
            except UnavailableError:
                continue
            except RefusedError as error:
                self.refused(error)

    async def ask(self, learner: str) -> Answer:
        """One question."""
        asked = self.world.loop.time()
        request = prediction_pb2.PredictRequest(learner=learner, inputs=inputs(PROBES))
        found = await self.network.call(lambda parts: parts.prediction.Predict(request, None))
        answer = Answer(
            learner,
            found.model_version,
            found.examples_beyond_version,
            tuple(found.labels.texts.values),
            (*found.distances, *found.vote_shares),
        )
        self.records.answers.append((answer, asked, self.world.disk.newest))
        return answer


class Operator(Actor):
    """Forgets, keeps, restores and undoes."""

    async def work(self) -> None:
        """What the plan says, in its order."""
        for kind in self.plan.operations:
            await self.pause(self.plan.seconds / 2)
            learner = self.chance.choice(self.plan.learners)
            try:
                await getattr(self, f"_{kind}")(learner)
            except UnavailableError:
                continue
            except RefusedError as error:
                self.refused(error)

    async def retry_parked(self, learner: str) -> None:
        """Have every parked episode tried again."""
        server = self.network.server
        for episode in server.parts.registry.get(learner).backlog.parked() if server is not None else ():
            request = parked_pb2.RetryParkedEpisodeRequest(learner=learner, episode=episode.number)
            await self._retry(request)

    async def _retry(self, request: parked_pb2.RetryParkedEpisodeRequest) -> None:
        await self.persist(lambda: self.network.call(lambda parts: parts.admin.RetryParkedEpisode(request, None)))

    async def _forget(self, learner: str) -> None:
        request = learner_admin_pb2.ForgetClassRequest(learner=learner, label=label_pb2.Label(text=FORGETTABLE))
        answer = await self.persist(lambda: self.network.call(lambda parts: parts.admin.ForgetClass(request, None)))
        if answer is not None:
            self.records.forgotten.append((learner, self.world.loop.time(), self.world.disk.newest))

    async def _snapshot(self, learner: str) -> None:
        request = snapshot_pb2.CreateSnapshotRequest(learner=learner)
        await self.network.call(lambda parts: parts.admin.CreateSnapshot(request, None))

    async def _restore(self, learner: str) -> None:
        listing = snapshot_pb2.ListSnapshotsRequest(learner=learner)
        found = await self.network.call(lambda parts: parts.admin.ListSnapshots(listing, None))
        if found.snapshots:
            chosen = self.chance.choice(list(found.snapshots)).id
            request = snapshot_pb2.RestoreSnapshotRequest(learner=learner, snapshot_id=chosen)
            await self.network.call(lambda parts: parts.admin.RestoreSnapshot(request, None))

    async def _undo(self, learner: str) -> None:
        request = class_admin_pb2.UndoVersionRequest(learner=learner)
        await self.network.call(lambda parts: parts.admin.UndoVersion(request, None))
