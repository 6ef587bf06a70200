"""Who uses the server while it is killed: a producer and an app, each with the real client."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from reliability.crash.operations import Operator
from reliability.crash.options import LEARNER, CrashOptions
from reliability.crash.stream import NumberedStream
from sharp_client import Client, DeadlineError, NothingLearnedError, Retry, SharpError, Timeout, UnavailableError
from sharp_client import LearnStream as ClientStream

STREAM_ID = "producer"
PATIENT = Retry(initial_delay=0.05, largest_delay=0.5, resume_for=600.0)


class _InBackground:
    """A thread that ends when asked to; what it fails with is raised to whoever ends it."""

    def __init__(self, address: str, timeout: Timeout) -> None:
        self.client = Client(address, retry=PATIENT, timeout=timeout)
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.client.close()
        self._thread.join(30.0)

    def finish(self, seconds: float = 3600.0) -> None:
        """Come to an end by itself, within so long."""
        self._ending.set()
        self._thread.join(seconds)
        if self.failure is not None:
            raise self.failure
        if self._thread.is_alive():
            raise TimeoutError(f"the {self._thread.name.lower()} did not come to its end within {seconds:.0f} s")

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self) -> None:
        """What the thread does."""
        raise NotImplementedError


class Producer(_InBackground):
    """Streams episode after episode, a few ahead of what is learned, with small pauses by chance."""

    def __init__(self, address: str, stream: NumberedStream, options: CrashOptions) -> None:
        super().__init__(address, Timeout(connect=options.patience))
        self._stream, self._options = stream, options
        self._random = random.Random(f"producer {options.seed}")
        self._call: ClientStream | None = None
        self.operator = Operator(self.client, LEARNER, stream)
        self.sent = 0
        self.lessons = 0
        """That were answered."""

    @property
    def acknowledged(self) -> int:
        """The newest number that the server called durable."""
        return 0 if self._call is None else self._call.acknowledged

    @property
    def learned(self) -> int:
        """Episodes that the server said it learned."""
        return 0 if self._call is None else sum(report.state == "learned" for report in self._call.episodes)

    @property
    def resumptions(self) -> int:
        """How often the stream broke and went on."""
        return 0 if self._call is None else self._call.resumptions

    def work(self) -> None:
        """Send until asked to end, then finish the episode and wait until all are learned."""
        with self.client.learn(LEARNER, stream_id=STREAM_ID, create=False) as call:
            self._call = call
            while not (self._ending.is_set() and self._stream.is_mark(max(1, self.sent))):
                self.sent += 1
                if self._stream.has_lesson(self.sent):
                    call.flush(self._options.patience)  # what came before it is durable before it
                    self._teach(self.sent)
                if not self._stream.is_mark(self.sent):
                    batch = self._stream.batch(self.sent)
                    call.send(batch.x, batch.y)
                    time.sleep(self._options.pause + self._random.choice((0.0, 0.01, 0.05)))
                    continue
                call.end_episode()
                episode = self._stream.episode_of(self.sent)
                ahead = self._options.ahead if self._stream.operation(episode) is None else 0
                for report in call.episodes[: len(call.episodes) - ahead]:
                    report.wait(self._options.patience)
                self.operator.work(episode)
            call.wait(self._options.patience)

    def _teach(self, sequence: int) -> None:
        """Teach the lesson before a number, as often as it takes: it is learned once."""
        while True:
            try:
                teach_lesson(self.client, LEARNER, self._stream, sequence)
            except (UnavailableError, DeadlineError):
                continue
            self.lessons += 1
            return


def teach_lesson(client: Client, learner: str, stream: NumberedStream, sequence: int) -> None:
    """Teach the lesson before a number."""
    lesson = stream.lesson(sequence)
    client.teach(learner, lesson.x, lesson.y, request_id=f"before/{sequence}", create=False)


@dataclass(frozen=True)
class Answer:
    """One answer that the app got."""

    version: int
    beyond: int
    """Examples known beyond that version."""
    episodes: int
    labels: tuple[str, ...]
    distances: tuple[float, ...]


class App(_InBackground):
    """Asks about the same examples again and again, and keeps the answers."""

    def __init__(self, address: str, stream: NumberedStream, clock: Callable[[], float] = time.time) -> None:
        super().__init__(address, Timeout(call=10.0))
        self._probes, self._clock = stream.probes(), clock
        self.answers: Counter[Answer] = Counter()
        self.first: dict[int, float] = {}
        """When a version answered for the first time."""
        self.unanswered = 0
        """Calls for which nobody was there."""
        self.nothing_learned: float = 0.0
        """When the server last said that it knows nothing yet."""
        self.backwards: list[tuple[int, int]] = []
        """Versions that were followed by an older one."""
        self.newest = 0

    def work(self) -> None:
        """Predict until asked to end."""
        while not self._ending.is_set():
            try:
                answer = self.client.predict(LEARNER, self._probes)
            except NothingLearnedError:
                self.nothing_learned = self._clock()
            except (UnavailableError, DeadlineError):
                self.unanswered += 1
            except SharpError as error:
                if self._ending.is_set():
                    return
                raise AssertionError(f"the app met something that it should not: {error!r}") from error
            else:
                version = answer.model_version
                labels, distances = tuple(map(str, answer.labels)), tuple(map(float, answer.distances))
                beyond = answer.examples_beyond_version
                self.answers[Answer(version, beyond, answer.episodes_learned, labels, distances)] += 1
                self.first.setdefault(version, self._clock())
                if version < self.newest:
                    self.backwards.append((self.newest, version))
                self.newest = version
            self._ending.wait(0.03)
