"""Everything that goes on beside the predictions: a producer that dies and comes back, snapshots, apps that restart.

Every failure is kept under its code; nothing is swallowed but refusals at a bound, which are counted by themselves.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Self

import numpy as np

from benchmarks.data import Images
from benchmarks.serving.bench import LEARNER
from sharp_client import Client, ExhaustedError, SharpError

_WAIT = 300.0
_SNAPSHOTS_PER_SECOND = 1.0
_RESTARTS_PER_SECOND = 2.0


class Company:
    """Threads that keep a server busy; ended with the context."""

    def __init__(self, address: str, images: Images, per_class: int) -> None:
        self._address, self._images = address, images
        members = [np.resize(np.flatnonzero(images.y == label), per_class) for label in (0, 1)]
        self._episode = images.take(np.random.default_rng(0).permutation(np.concatenate(members)))
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.exhausted: Counter[str] = Counter()
        self._stop = threading.Event()
        works = ((self._teach, 0.0), (self._keep, 1 / _SNAPSHOTS_PER_SECOND), (self._restart, 1 / _RESTARTS_PER_SECOND))
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
            try:
                work()
            except ExhaustedError as error:
                self.exhausted[type(error).__name__] += 1
            except SharpError as error:
                self.failures[f"{work.__name__.strip('_')}: {type(error).__name__}: {error}"[:300]] += 1
            self._stop.wait(pause)

    def _teach(self) -> None:
        """Half an episode, then the producer is gone; another one takes the stream up and brings it to its end."""
        stream_id, half = f"load/{uuid.uuid4()}", len(self._episode) // 2
        with Client(self._address) as client:
            stream = client.learn(LEARNER, stream_id=stream_id)
            stream.send(self._episode.x[:half], self._episode.y[:half])
            stream.flush(_WAIT)
            stream.cancel()
        self.done["producers that left in mid-episode"] += 1
        with Client(self._address) as client, client.learn(LEARNER, stream_id=stream_id) as stream:
            stream.send(self._episode.x[half:], self._episode.y[half:])
            stream.end_episode().wait(_WAIT)
        self.done["episodes learned"] += 1

    def _keep(self) -> None:
        """A snapshot is taken, looked for and deleted."""
        with Client(self._address) as client:
            kept = client.create_snapshot(LEARNER, note="load")
            client.list_snapshots(LEARNER)
            client.delete_snapshot(LEARNER, kept.id)
        self.done["snapshots"] += 1

    def _restart(self) -> None:
        """An app starts, asks a little and ends."""
        with Client(self._address) as client:
            for _ in range(3):
                client.predict(LEARNER, self._images.x[:2])
        self.done["restarts of apps"] += 1
