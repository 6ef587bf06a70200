"""What predictions notice of open pages, and how soon a page is there.

Single images at a fixed rate, without and with ten pages beside, idle and while an episode is learned: each side has an
episode of its own and is measured from its beginning, so that a version that comes early falls to both. A page is, for
the server, a reader of a learner's events that comes once for its files and stays; every reader must have read a state,
or nothing was watched. First paint is the browser's own figure.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.reporting.runner import ReportProgress
from benchmarks.serving.bench import LEARNER, Bench
from benchmarks.serving.latency import Latency, long_episode, watched
from benchmarks.serving.options import PAGE_TARGET
from benchmarks.serving.paint import Paints, paint
from devtools.browser import CHROMIUM

_Meanwhile = Callable[[Bench, Latency], contextlib.AbstractContextManager[None]]

PAGES = 10
_FILES = ("/", "/assets/app.css", "/assets/app.js", "/assets/learner.js", f"/api/learners/{LEARNER}")
_SECONDS = 60.0
_TEXTS = (b"event: state\n", b"event: status\n")


@dataclass
class PageResult:
    """All states at one rate."""

    rate: float
    """Requests per second."""
    alone: Latency = field(default_factory=lambda: Latency("idle, no page open"))
    watched: Latency = field(default_factory=lambda: Latency(f"idle, {PAGES} pages open"))
    learning: Latency = field(default_factory=lambda: Latency("while learning, no page open"))
    learning_watched: Latency = field(default_factory=lambda: Latency(f"while learning, {PAGES} pages open"))
    states_read: int = 0
    """By all pages together."""
    paints: list[Paints] = field(default_factory=list)
    """Empty where there is no browser."""

    @property
    def failures(self) -> int:
        """Requests that were not answered."""
        return sum(state.failures for pair in self.pairs() for state in pair)

    def pairs(self) -> list[tuple[Latency, Latency]]:
        """Each without and with pages."""
        return [(self.alone, self.watched), (self.learning, self.learning_watched)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        states: list[dict[str, Any]] = []
        for without, beside in self.pairs():
            p50, p99 = beside.against(without)
            states += [without.to_dict(), {**beside.to_dict(), "p50_ratio": p50, "p99_ratio": p99}]
        return {
            "rate": self.rate,
            "pages": PAGES,
            "states": states,
            "states_read": self.states_read,
            "target": PAGE_TARGET,
            "paints": [found.to_dict() for found in self.paints],
        }


def pages(bench: Bench, rate: float, progress: ReportProgress) -> PageResult:
    """Measure all states in every round, taking turns in beginning; then open the page in a browser."""
    result, rounds = PageResult(rate), bench.options.sizes.latency_rounds
    bench.ask(bench.server.address, rate=rate)  # warms up
    for number in range(1, rounds + 1):
        progress(f"pages: idle, round {number} of {rounds}")
        _round(bench, result, number, (result.alone, result.watched), _idle)
        progress(f"pages: while learning, round {number} of {rounds}")
        _round(bench, result, number, (result.learning, result.learning_watched), _learning)
    if CHROMIUM is not None:
        idle, learning = Paints("idle"), Paints("while learning")
        progress("pages: first paint")
        paint(bench, idle, rounds)
        with long_episode(bench):
            paint(bench, learning, rounds)
        result.paints = [idle, learning]
    return result


def _round(
    bench: Bench, result: PageResult, number: int, sides: tuple[Latency, Latency], meanwhile: _Meanwhile
) -> None:
    """Measure without and with pages; in every other round, the other way round."""
    for side in sides if number % 2 else sides[::-1]:
        count = PAGES if side is sides[1] else 0
        with _open_pages(bench.server.http_port, count) as readers, meanwhile(bench, side):
            side.add(bench.ask(bench.server.address, rate=result.rate))
        result.states_read += sum(reader.states for reader in readers)


@contextlib.contextmanager
def _idle(bench: Bench, state: Latency) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _learning(bench: Bench, state: Latency) -> Iterator[None]:
    with long_episode(bench), watched(bench, state):
        yield


class _Reader:
    """One page: its files, then events until it is closed."""

    def __init__(self, port: int) -> None:
        self.states = 0
        self.reading = threading.Event()
        self._port = port
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The tab is closed."""
        self._closed = True
        self._thread.join(_SECONDS)

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        with contextlib.closing(connection):
            for path in _FILES:
                connection.request("GET", path)
                connection.getresponse().read()
            connection.request("GET", f"/api/learners/{LEARNER}/events")
            events = connection.getresponse()
            while not self._closed:
                line = events.readline()
                if not line:
                    return
                if line in _TEXTS:
                    self.states += 1
                    self.reading.set()


@contextlib.contextmanager
def _open_pages(port: int, count: int) -> Iterator[list[_Reader]]:
    readers = [_Reader(port) for _ in range(count)]
    try:
        if not all(reader.reading.wait(_SECONDS) for reader in readers):
            raise BenchmarkError("a page was opened and heard nothing")
        yield readers
    finally:
        for reader in readers:
            reader.close()
