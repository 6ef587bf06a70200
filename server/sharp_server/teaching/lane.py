"""One learner's knowledge beyond its version, as the event loop keeps it: what is known, what waits, in which order."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharp_engine import Label, LearnerConfig
from sharp_server.errors import RpcError
from sharp_server.prediction.model import Model
from sharp_server.storage.records import Beyond, LessonRow
from sharp_server.teaching.protocol import Examples
from sharp_server.teaching.remote import RemoteLearner
from sharp_server.teaching.suspects import Suspects

_OUTCOMES = 1000
"""Of the newest lessons, for whoever repeats one."""


class Teachable(Protocol):
    """A learner, as far as teaching is concerned."""

    @property
    def id(self) -> int:
        """Its id in the journal."""
        ...

    @property
    def uid(self) -> str:
        """The name of its folder."""
        ...

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def config(self) -> LearnerConfig:
        """The engine's config."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Of one example, once it is fixed."""
        ...

    @property
    def model(self) -> Model:
        """What serves."""
        ...

    @property
    def head(self) -> tuple[str, bytes] | None:
        """Name and SHA-256 of the snapshot that holds its version."""
        ...

    @property
    def deleted(self) -> bool:
        """Whether it is no more."""
        ...

    @property
    def farewell(self) -> RpcError:
        """What whoever still waits for it hears then."""
        ...

    @property
    def can_be_taught(self) -> bool:
        """Whether examples can count before their episode is learned."""
        ...

    @property
    def unlearned_examples(self) -> int:
        """Durable examples of batches that are to be learned."""
        ...

    def labels_by_ordinal(self) -> dict[int, Label]:
        """The classes met and not forgotten."""
        ...

    def serve_taught(self, model: Model) -> None:
        """Answer with this from the next batch on: the same version, and more known beyond it."""
        ...

    def lesson_arrived(self, examples: int) -> None:
        """A lesson is durable, and not known yet."""
        ...

    def lesson_known(self, examples: int) -> None:
        """It is known now, or could not be taught."""
        ...

    def keep_lessons(self, lessons: int, nbytes: int) -> None:
        """So many lessons are no part of a version, and take so many bytes."""
        ...


@dataclass(frozen=True)
class Lesson:
    """What became of a lesson: it is durable and serving."""

    row: LessonRow
    corrections: int
    """Examples that were answered wrong before; 0 of a repetition that nobody remembers."""


@dataclass(eq=False)
class Waiting:
    """A durable lesson that is to be taught."""

    place: int
    counted: int
    """Its stamp: batches up to this place are known before it."""
    x: Examples
    labels: Sequence[Label]
    known: asyncio.Future[int]
    """How many of its examples were answered wrong before."""
    settled: bool = False
    """Whether it became known from the journal: it is answered as soon as that serves."""


@dataclass(frozen=True)
class _Taught:
    """A lesson that is known beyond the version."""

    examples: int
    bytes: int
    since: float


class Lane:
    """Belongs to the event loop; what is taught itself belongs to the teacher."""

    def __init__(self, served: Teachable) -> None:
        self.served = served
        self.taught: RemoteLearner | None = None
        """Absent until it is needed: nothing is known beyond the version then."""
        self.lock = asyncio.Lock()
        """Held while something is taught, and while the journal changes what is to be."""
        self.stale = False
        """Whether it must be made anew before anything else."""
        self.suspects = Suspects()
        self.counted = 0
        """Place of the batch that was counted last, or is about to be: what lessons are stamped with."""
        self.stamps: deque[int] = deque()
        """Of lessons on their way to the disk, in order."""
        self.queue: deque[Waiting] = deque()
        """In order."""
        self.ahead: deque[Beyond] = deque()
        """Batches read back from the journal and not counted yet."""
        self.last_batch = 0.0
        self.last_swap = 0.0
        self.task: asyncio.Task[None] | None = None
        self.batch_examples = 0
        """Examples of batches that are known."""
        self._lessons: dict[int, _Taught] = {}
        """By place."""
        self._lesson_examples = self._lesson_bytes = 0
        """Of all of them."""
        self._outcomes: OrderedDict[int, int] = OrderedDict()
        self._moved = asyncio.Event()

    @property
    def beyond(self) -> int:
        """Examples known beyond the version."""
        return self._lesson_examples + self.batch_examples

    @property
    def lessons(self) -> int:
        """Lessons known beyond the version."""
        return len(self._lessons)

    @property
    def oldest_lesson(self) -> float:
        """Since when the oldest of them has been known (monotonic)."""
        return min((lesson.since for lesson in self._lessons.values()), default=time.monotonic())

    def lesson_taught(self, place: int, examples: int, nbytes: int, corrections: int) -> None:
        """A lesson is known."""
        self._lessons[place] = _Taught(examples, nbytes, time.monotonic())
        self._lesson_examples += examples
        self._lesson_bytes += nbytes
        self._outcomes[place] = corrections
        while len(self._outcomes) > _OUTCOMES:
            self._outcomes.popitem(last=False)

    @property
    def first_lesson(self) -> int:
        """Place of the first of them; there must be one."""
        return min(self._lessons)

    def knows(self, place: int) -> bool:
        """Whether a lesson is known beyond the version."""
        return place in self._lessons

    def outcome(self, place: int) -> int:
        """How many examples of a lesson were answered wrong before; 0: nobody remembers."""
        return self._outcomes.get(place, 0)

    def take_in(self, until: int) -> None:
        """Lessons up to a place are part of the version."""
        for place in [place for place in self._lessons if place <= until]:
            taken = self._lessons.pop(place)
            self._lesson_examples -= taken.examples
            self._lesson_bytes -= taken.bytes
        self.weigh()

    def weigh(self) -> None:
        """Say how many bytes lessons take."""
        self.served.keep_lessons(len(self._lessons), self._lesson_bytes)

    def begin_anew(self, taught: RemoteLearner | None) -> None:
        """Nothing is known but a version."""
        self.let_go()
        self.taught, self._lessons, self.batch_examples = taught, {}, 0
        self._lesson_examples = self._lesson_bytes = 0
        self.ahead.clear()

    def let_go(self) -> None:
        """The teacher need not keep it."""
        if self.taught is not None:
            self.taught.drop()
            self.taught = None

    def answer(self, chosen: Sequence[Waiting]) -> None:
        """These lessons serve: whoever waits for them hears so."""
        for waiting in chosen:
            self.queue.remove(waiting)
            if not waiting.known.done():
                waiting.known.set_result(self.outcome(waiting.place))
        self.move()

    def refuse(self, chosen: Sequence[Waiting], error: Exception) -> None:
        """These could not be taught."""
        for waiting in chosen:
            self.queue.remove(waiting)
            if not waiting.known.done():
                waiting.known.set_exception(error)
        self.move()

    def move(self) -> None:
        """Something changed: whoever waits looks again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not condition():
            await self._moved.wait()
