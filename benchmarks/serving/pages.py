"""What predictions notice of open pages: single images at a fixed rate, without and with ten pages beside.

A page is, for the server, a reader of a learner's events that comes once for its files and stays. Every reader must
have read a state, or nothing was watched.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.reporting.runner import ReportProgress
from benchmarks.serving.bench import LEARNER, Bench
from benchmarks.serving.latency import Latency
from benchmarks.serving.options import PAGE_TARGET

PAGES = 10
_FILES = ("/", "/assets/app.css", "/assets/app.js", "/assets/learner.js", f"/api/learners/{LEARNER}")
_SECONDS = 60.0


@dataclass
class PageResult:
    """Both states at one rate."""

    rate: float
    """Requests per second."""
    alone: Latency = field(default_factory=lambda: Latency("no page open"))
    watched: Latency = field(default_factory=lambda: Latency(f"{PAGES} pages open"))
    states_read: int = 0
    """By all pages together."""

    @property
    def failures(self) -> int:
        """Requests that were not answered."""
        return self.alone.failures + self.watched.failures

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        p50, p99 = self.watched.against(self.alone)
        return {
            "rate": self.rate,
            "pages": PAGES,
            "states": [self.alone.to_dict(), self.watched.to_dict()],
            "states_read": self.states_read,
            "p50_ratio": p50,
            "p99_ratio": p99,
            "target": PAGE_TARGET,
        }


def pages(bench: Bench, rate: float, progress: ReportProgress) -> PageResult:
    """Measure both states in every round, taking turns in beginning."""
    result, rounds = PageResult(rate), bench.options.sizes.latency_rounds
    bench.ask(bench.server.address, rate=rate)  # warms up
    for number in range(1, rounds + 1):
        progress(f"pages: round {number} of {rounds}")
        if number % 2:
            result.alone.add(bench.ask(bench.server.address, rate=rate))
        with _open_pages(bench.server.http_port) as readers:
            result.watched.add(bench.ask(bench.server.address, rate=rate))
        result.states_read += sum(reader.states for reader in readers)
        if not number % 2:
            result.alone.add(bench.ask(bench.server.address, rate=rate))
    return result


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
                if line == b"event: state\n":
                    self.states += 1
                    self.reading.set()


@contextlib.contextmanager
def _open_pages(port: int) -> Iterator[list[_Reader]]:
    readers = [_Reader(port) for _ in range(PAGES)]
    try:
        if not all(reader.reading.wait(_SECONDS) for reader in readers):
            raise BenchmarkError("a page was opened and heard nothing")
        yield readers
    finally:
        for reader in readers:
            reader.close()
