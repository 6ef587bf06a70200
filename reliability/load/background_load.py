"""Everything that goes on beside the predictions: a producer that dies and comes back, lessons, snapshots, apps that
restart, people who look at the page.

Every call is counted under its RPC and its code. No failure is swallowed; calls refused at a limit are counted as such.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np

from benchmarks.datasets import Examples
from benchmarks.serving.bench import LEARNER
from reliability.load.pages import visit
from reliability.load.result import LABELS, PAGES, CallCounts
from sharp_client import Client, SharpError

_WAIT = 300.0
_SNAPSHOTS_PER_SECOND = 1.0
_RESTARTS_PER_SECOND = 2.0
_LABELS, _SECONDS_BETWEEN_LESSONS = 3, 0.3
"""Of a lesson; near capacity it takes most of a second itself, so these are a few labels a second."""
_VISITORS = 2
"""Who look at the page at the same time; each leaves after a while, and another one comes."""


class BackgroundLoad:
    """Threads that keep a server busy; they end with the context, each after the call that it is in."""

    def __init__(self, address: str, page: str, images: Examples, per_class: int, calls: CallCounts) -> None:
        """`page`: where the HTTP port is. `per_class`: examples of an episode, of each of its two classes."""
        self._address, self._page, self._images, self._calls = address, page, images, calls
        self._chance = np.random.default_rng(0)
        members = [np.resize(np.flatnonzero(images.y == label), per_class) for label in (0, 1)]
        self._episode = images.take(np.random.default_rng(0).permutation(np.concatenate(members)))
        self.done: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._stop = threading.Event()
        works = (
            (self._learn_episode, 0.0),
            (self._take_snapshot, 1 / _SNAPSHOTS_PER_SECOND),
            (self._restart_app, 1 / _RESTARTS_PER_SECOND),
            (self._teach, _SECONDS_BETWEEN_LESSONS),
            *[(self._open_page, 0.0)] * _VISITORS,
        )
        self._threads = [threading.Thread(target=self._repeat, args=work) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, work: Callable[[], None], pause: float) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(SharpError):  # counted where it was raised
                work()
            self._stop.wait(pause)

    @contextlib.contextmanager
    def _counted(self, rpc: str) -> Iterator[None]:
        """Count what is done inside as one call."""
        try:
            yield
        except SharpError as error:
            self._calls.add(rpc, error.code or type(error).__name__, str(error))
            raise
        self._calls.add(rpc, "OK")

    def _learn_episode(self) -> None:
        """Half an episode, then the producer is gone; another one resumes the stream and ends the episode."""
        stream_id, half = f"load/{uuid.uuid4()}", len(self._episode) // 2
        with Client(self._address) as client, self._counted("Learn, left in mid-episode"):
            stream = client.learn(LEARNER, stream_id=stream_id)
            stream.send(self._episode.x[:half], self._episode.y[:half])
            stream.flush(_WAIT)
            stream.cancel()
        with Client(self._address) as client, self._counted("Learn, resumed"):
            with client.learn(LEARNER, stream_id=stream_id) as stream:
                stream.send(self._episode.x[half:], self._episode.y[half:])
                stream.end_episode().wait(_WAIT)
        self._did("episodes learned")

    def _take_snapshot(self) -> None:
        """A snapshot is made, looked for and deleted."""
        with Client(self._address) as client:
            with self._counted("CreateSnapshot"):
                made = client.create_snapshot(LEARNER, note="load")
            with self._counted("ListSnapshots"):
                client.list_snapshots(LEARNER)
            with self._counted("DeleteSnapshot"):
                client.delete_snapshot(LEARNER, made.id)
        self._did("snapshots taken and deleted")

    def _restart_app(self) -> None:
        """An app starts, asks a little and ends."""
        with Client(self._address) as client:
            for _ in range(3):
                with self._counted("Predict, restarting apps"):
                    client.predict(LEARNER, self._images.x[:2])
        self._did("restarts of apps")

    def _teach(self) -> None:
        """Somebody says what a few images are."""
        lesson = self._images.take(self._chance.integers(0, len(self._images), _LABELS))
        with Client(self._address) as client, self._counted("Teach"):
            client.teach(LEARNER, lesson.x, lesson.y, create=False)
        self._did(LABELS, _LABELS)

    def _open_page(self) -> None:
        """Somebody looks at the page for a while."""
        if visit(self._page, LEARNER, self._calls):
            self._did(PAGES)
        else:
            self._stop.wait(1.0)

    def _did(self, what: str, count: int = 1) -> None:
        with self._counting:
            self.done[what] += count
