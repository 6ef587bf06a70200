"""One run: capacity first, then a fixed share of it for minutes, slice by slice."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.errors import BenchmarkError, require
from benchmarks.load.company import Company
from benchmarks.machine import machine, versions
from benchmarks.memory import Memory
from benchmarks.serving.bench import images_of, payload, teach_all
from benchmarks.serving.options import Sizes
from benchmarks.serving.processes import LoadGenerator, MeasuredServer, Program, choose_cores
from sharp_client import Client

SHARE = 0.8
"""Of the capacity."""
EXHAUSTED = "RESOURCE_EXHAUSTED"

Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class LoadOptions:
    """One run."""

    minutes: float = 10.0
    connections: int = 500
    slice_seconds: float = 10.0
    """The load comes over a new connection this often; memory is looked at as often."""
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
class LoadResult:
    """What a server did under load."""

    options: LoadOptions
    capacity: float = 0.0
    """Requests per second that were answered at most, with everything else going on."""
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    p99_by_slice: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    """Failed requests of the load and of the crowd."""
    company: dict[str, int] = field(default_factory=dict)
    company_failures: dict[str, int] = field(default_factory=dict)
    company_exhausted: dict[str, int] = field(default_factory=dict)
    crowd_answers: int = 0
    connected: int = 0
    connections_seen: int = 0
    """Connections that the server's port had at the same time, by the system's own account."""
    still_connected: int = 0
    memory: Memory = field(default_factory=Memory)
    exit_code: int | None = None

    @property
    def rate(self) -> float:
        """Requests per second that were sent."""
        return SHARE * self.capacity

    @property
    def failures(self) -> list[str]:
        """Everything that must not be; empty: the server held."""
        found = [f"{code}: {count} requests" for code, count in self.codes.items() if code != EXHAUSTED]
        found += [f"{what} ({count} times)" for what, count in self.company_failures.items()]
        if self.still_connected < self.options.connections:
            found.append(f"{self.options.connections - self.still_connected} of the crowd lost their connection")
        if self.exit_code != 0:
            found.append(f"the server ended with {self.exit_code}")
        return found

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the requests, in per cent, was answered."""
        return float(np.percentile(self.latencies or [float("nan")], share))

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
            "requests": len(self.latencies) + sum(self.codes.values()),
            "p50_seconds": self.percentile(50),
            "p99_seconds": self.percentile(99),
            "p99_by_slice": self.p99_by_slice,
            "failed_by_code": dict(self.codes),
            "company": self.company,
            "company_exhausted": self.company_exhausted,
            "crowd": {
                "connected": self.connected,
                "seen_by_the_system": self.connections_seen,
                "still_connected": self.still_connected,
                "answers": self.crowd_answers,
            },
            "memory": {**self.memory.to_dict(), "slopes_per": "minute"},
            "exit_code": self.exit_code,
            "failures": self.failures,
        }


def run(options: LoadOptions, tell: Tell = lambda _, __: None) -> LoadResult:
    """Load a server; `tell` hears how many seconds of it are over, and what is being done."""
    result = LoadResult(options)
    images, cores = images_of(8), choose_cores()
    sizes = Sizes() if options.full_sizes else Sizes(first_epochs=1)
    order = {"payload": payload(images, 1)}
    with tempfile.TemporaryDirectory(prefix="sharp-load-") as place:
        folder = Path(place)
        with (
            MeasuredServer(folder, cores, 10, {"limits.streams": 2000}).start() as server,
            LoadGenerator(folder, cores) as load,
        ):
            tell(0.0, "teaching")
            with Client(server.address) as client:
                teach_all(client, images, sizes)
            server.settle()
            order["address"] = server.address
            with (
                _crowd(folder, order, result, tell),
                Company(server.address, images, sizes.swap_examples) as company,
            ):
                tell(0.0, "measuring capacity")
                found = load.ask({**order, "in_flight": options.in_flight, "seconds": options.capacity_seconds})
                result.capacity = len(found["latencies"]) / found["seconds"]
                _note(result, found)
                result.latencies.clear()
                _load(load, order, server, result, tell)
            result.company = dict(company.done)
            result.company_failures, result.company_exhausted = dict(company.failures), dict(company.exhausted)
        result.exit_code = server.exit_code
    return result


def _load(load: LoadGenerator, order: dict[str, Any], server: MeasuredServer, result: LoadResult, tell: Tell) -> None:
    """Ask at the fixed rate until the time is over."""
    options, begun = result.options, time.perf_counter()
    while (passed := time.perf_counter() - begun) < 60.0 * options.minutes:
        tell(passed, f"{result.rate:,.0f} requests/s")
        found = load.ask({**order, "rate": result.rate, "seconds": options.slice_seconds})
        _note(result, found)
        result.p99_by_slice.append(float(np.percentile(found["latencies"] or [float("nan")], 99)))
        result.connections_seen = max(result.connections_seen, connections_of(server.port))
        result.memory.sample((time.perf_counter() - begun) / 60.0, *server.memory())
    result.seconds = time.perf_counter() - begun


def _note(result: LoadResult, found: dict[str, Any]) -> None:
    result.latencies += found["latencies"]
    result.codes.update(found["failures"])


@contextmanager
def _crowd(folder: Path, order: dict[str, Any], result: LoadResult, tell: Tell) -> Iterator[None]:
    """Hold many connections for a while; what became of their questions is noted."""
    options = result.options
    with Program(["-m", "benchmarks.load.crowd"], frozenset(), folder / "crowd.log") as crowd:
        tell(0.0, f"connecting {options.connections} clients")
        pause = 10.0 / options.connections  # everyone asks about every ten seconds
        answer = crowd.ask({**order, "connections": options.connections, "pause": pause})
        result.connected = answer["connected"]
        yield
        if crowd.process.stdin is None:
            raise BenchmarkError("the crowd can't be told to end")
        crowd.process.stdin.close()
        said = crowd.read()
        crowd.process.wait()
    codes = Counter(said["codes"])
    result.crowd_answers = codes.pop("OK", 0)
    result.codes.update(codes)
    result.still_connected = said["still_connected"]


def connections_of(port: int) -> int:
    """Established connections of a local port, by the system's own account; 0 where it does not say."""
    found = 0
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            words = line.split()
            if int(words[1].rpartition(":")[2], 16) == port and words[3] == "01":
                found += 1
    return found
