"""What a server did under load: every slice of the run, every call by RPC and code, and what its processes held.

A call that was refused at a limit (RESOURCE_EXHAUSTED) is counted but is no failure: that is what limits are for.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.errors import require
from benchmarks.reporting.machine import machine, versions
from reliability.load.latencies import Latencies, LongSlice
from reliability.memory import Memory

SHARE = 0.8
"""Of the capacity that is sent."""
PREDICT = "Predict, load"
PREDICT_IDLE = "Predict, idle connections"
LABELS, PAGES = "labels taught", "pages opened"
"""What background load calls these."""
_NO_FAILURE = ("OK", "RESOURCE_EXHAUSTED")
_LONG_SLICE_SECONDS = 600.0
_WARM_UP_MINUTES = 10.0
"""That the slopes of memory leave out, in a run that is long enough."""


@dataclass(frozen=True)
class LoadOptions:
    """One run."""

    minutes: float = 10.0
    connections: int = 500
    slice_seconds: float = 10.0
    """The load comes over a new connection this often; memory is sampled as often."""
    capacity_seconds: float = 10.0
    in_flight: int = 32
    """Requests under way while capacity is measured."""
    full_sizes: bool = True
    """Whether the learner is taught as in the serving benchmark; else only a little, to see that everything runs."""

    def __post_init__(self) -> None:
        require(self.minutes > 0, "minutes", self.minutes, "positive")
        require(self.connections >= 1, "connections", self.connections, "at least 1")
        require(self.slice_seconds > 0, "slice-seconds", self.slice_seconds, "positive")


@dataclass
class CallCounts:
    """Calls by RPC and code, and for each failure what was said first. Any thread may add."""

    by_rpc: dict[str, Counter[str]] = field(default_factory=dict)
    first_messages: dict[str, str] = field(default_factory=dict)
    """By "RPC: code"."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, rpc: str, code: str, message: str = "", count: int = 1) -> None:
        """Count calls that ended the same way."""
        if not count:
            return
        with self._lock:
            self.by_rpc.setdefault(rpc, Counter())[code] += count
            if code != "OK":
                self.first_messages.setdefault(f"{rpc}: {code}", message[:300])

    def total(self, rpc: str) -> int:
        """Calls of one RPC, however they ended."""
        return self.by_rpc.get(rpc, Counter()).total()

    def failed(self) -> dict[str, dict[str, int]]:
        """By RPC: codes that must not be, and how often."""
        found = {
            rpc: {code: n for code, n in codes.items() if code not in _NO_FAILURE} for rpc, codes in self.by_rpc.items()
        }
        return {rpc: codes for rpc, codes in found.items() if codes}


@dataclass(frozen=True)
class Slice:
    """Some seconds of the load."""

    start: float
    """Seconds since the load began."""
    answered: int
    failed: Mapping[str, int]
    """By code."""
    p50: float
    p99: float
    """In seconds, counted from the moment at which a request was due."""
    generator_share: float
    """Of a core, that the load generator used: near 1 it is the generator that is slow, not the server."""


@dataclass
class CountOverTime:
    """How many there were of something, sampled."""

    first: int = 0
    last: int = 0
    most: int = 0
    samples: int = 0

    def add(self, count: int) -> None:
        """Take a sample."""
        if not self.samples:
            self.first = count
        self.last, self.most, self.samples = count, max(self.most, count), self.samples + 1

    def to_dict(self) -> dict[str, int]:
        """Plain JSON values."""
        return {"first": self.first, "last": self.last, "most": self.most}


@dataclass
class LoadResult:
    """One run."""

    options: LoadOptions
    capacity: float = 0.0
    """Requests per second that were answered at most, with everything else going on."""
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    slices: list[Slice] = field(default_factory=list)
    calls: CallCounts = field(default_factory=CallCounts)
    background: dict[str, int] = field(default_factory=dict)
    """What the background load got done."""
    connected: int = 0
    connections_seen: int = 0
    """Connections that the server's port had at the same time, by the system's own account."""
    still_connected: int = 0
    memory: Memory = field(default_factory=lambda: Memory(_WARM_UP_MINUTES))
    descriptors: CountOverTime = field(default_factory=CountOverTime)
    """Files, sockets and pipes that the server's processes had open."""
    files: CountOverTime = field(default_factory=CountOverTime)
    """In the data folder."""
    exit_code: int | None = None

    @property
    def rate(self) -> float:
        """Requests per second that were sent."""
        return SHARE * self.capacity

    @property
    def failures(self) -> list[str]:
        """Everything that must not be; empty: the server held."""
        found = [
            f"{rpc}: {count:,} × {code} ({self.calls.first_messages.get(f'{rpc}: {code}', '')})"
            for rpc, codes in self.calls.failed().items()
            for code, count in codes.items()
        ]
        if self.still_connected < self.options.connections:
            found.append(f"{self.options.connections - self.still_connected} idle connections were lost")
        if self.exit_code != 0:
            found.append(f"the server ended with exit code {self.exit_code}")
        return found

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the requests, in per cent, was answered."""
        return self.latencies.percentile(share)

    @property
    def long_slices(self) -> list[LongSlice]:
        """The load by ten minutes."""
        return self.latencies.slices(_LONG_SLICE_SECONDS)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "versions": versions(),
            "machine": machine(),
            "other_work": {"load_average": os.getloadavg(), "cores": os.cpu_count()},
            "settings": asdict(self.options),
            "capacity": self.capacity,
            "rate": self.rate,
            "seconds": self.seconds,
            "requests": self.calls.total(PREDICT),
            "p50_seconds": self.percentile(50),
            "p99_seconds": self.percentile(99),
            "slices": [asdict(part) for part in self.slices],
            "ten_minute_slices": [asdict(part) for part in self.long_slices],
            "calls_by_rpc": {rpc: dict(codes) for rpc, codes in self.calls.by_rpc.items()},
            "failed_by_rpc": self.calls.failed(),
            "background": self.background,
            "lessons": self.background.get(LABELS, 0),
            "pages": self.background.get(PAGES, 0),
            "idle_connections": {
                "connected": self.connected,
                "seen_by_the_system": self.connections_seen,
                "still_connected": self.still_connected,
            },
            "memory": {**self.memory.to_dict(), "slopes_per": "minute"},
            "descriptors": self.descriptors.to_dict(),
            "files": self.files.to_dict(),
            "exit_code": self.exit_code,
            "failures": self.failures,
        }
