"""The work that goes on while something fails: a producer that sends episodes, and an app that asks all the time.

Both use the client as anybody would. They write down what they saw, and never stop because of it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from sharp_client import Client, Retry, SharpError, Timeout, Tls

KNOWN, LEARNING = "known", "learning"
OPTIONS = {
    "architecture.layers": [{"kind": "linear", "units": 16}] * 2,
    "metric.random_features": 8,
    "training.phases": 2,
    "training.epochs": 1,
    "training.min_steps": 0,
}
VALUES, BATCH = 8, 16
_RETRY = Retry(attempts=1)
_PAUSE = 0.05


def examples(batch: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], list[str]]:
    """A batch of two classes, around a corner each; the same for the same number."""
    generator = np.random.default_rng(batch)
    y = np.arange(BATCH) % 2
    x = 0.1 * generator.standard_normal((BATCH, VALUES))
    x[y == 0, : VALUES // 2] += 1.0
    x[y == 1, VALUES // 2 :] += 1.0
    return x.astype(np.float32), [f"class-{i}" for i in y]


@dataclass
class Seen:
    """What an app saw in some time."""

    answered: int = 0
    wrong: int = 0
    slowest: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)


class App:
    """Asks for predictions until it is told to end; `seen` is what it saw since it was last looked at."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._address, self._tls = address, tls
        self._end = threading.Event()
        self._seen, self._lock = Seen(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> Seen:
        """What was seen since the last time."""
        with self._lock:
            found, self._seen = self._seen, Seen()
        return found

    def answered(self, seconds: float) -> bool:
        """Whether a prediction is answered from now on, within so long."""
        deadline = time.monotonic() + seconds
        self.seen()
        while time.monotonic() < deadline:
            if self.seen().answered:
                return True
            time.sleep(_PAUSE)
        return False

    def end(self) -> None:
        """Stop asking."""
        self._end.set()
        self._thread.join(60)

    def _run(self) -> None:
        x, y = examples(0)
        timeout = Timeout(call=10.0, connect=5.0)
        with Client(self._address, tls=self._tls, retry=_RETRY, timeout=timeout) as client:
            while not self._end.is_set():
                begun = time.monotonic()
                try:
                    right, reason = list(client.predict(KNOWN, x[:2]).labels) == y[:2], ""
                except SharpError as error:
                    right, reason = True, type(error).__name__
                with self._lock:
                    self._seen.slowest = max(self._seen.slowest, time.monotonic() - begun)
                    if reason:
                        self._seen.failed[reason] += 1
                    else:
                        self._seen.answered += 1
                        self._seen.wrong += not right
                time.sleep(_PAUSE)


class Producer:
    """Sends episodes of two batches until it is told to end; what is acknowledged has to be learned."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        retry = Retry(initial_delay=0.1, largest_delay=0.5, resume_for=300.0)
        self._client = Client(address, tls=tls, retry=retry)
        self._end = threading.Event()
        self.stream = self._client.learn(LEARNING, stream_id="producer")
        self.sent = 0
        self.error = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                for _ in range(2):
                    self.stream.send(*examples(self.sent))
                    self.sent += 1
                self.stream.end_episode()
                self._end.wait(0.4)
        except SharpError as error:
            self.error = f"{type(error).__name__}: {error}"

    @property
    def acknowledged(self) -> int:
        """Batches and boundaries that are durable."""
        return self.stream.acknowledged

    def end(self, seconds: float) -> None:
        """Stop sending, and wait until everything is acknowledged and learned."""
        self._end.set()
        self._thread.join(seconds)
        try:
            self.stream.wait(seconds)
            self.stream.close()
        except (SharpError, TimeoutError) as error:
            self.error = self.error or f"{type(error).__name__}: {error}"

    def lost(self) -> int:
        """Examples that were acknowledged, and that the learner does not know."""
        return self.sent * BATCH - self._client.learner(LEARNING).status().examples_known

    def close(self) -> None:
        """Leave."""
        self._client.close()
