"""The same requests to two servers in turns: one that Ray keeps beside one alone, and one alone beside one of before
there was a cluster.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.kept_server import kept_server
from benchmarks.cluster.options import ALONE_TARGET, RAY_TARGET, SMALL, ClusterOptions
from benchmarks.errors import BenchmarkError
from benchmarks.serving.bench import LEARNER, images_of, payload, teach
from benchmarks.serving.comparison import Measured, Throughput, in_turns
from benchmarks.serving.processes import Cores, LoadGenerator, MeasuredServer, choose_cores
from devtools.postgres_process import PostgresProcess
from devtools.process_stats import cpu_seconds, resident_bytes
from devtools.server_process import ONE_THREAD, ROOT, ServerProcess
from sharp_client import Client


@dataclass(frozen=True)
class Cost:
    """What a start costs now, and did before; medians."""

    name: str
    unit: str
    now: float
    before: float
    ratio: float
    """Now over before, the median of the pairs."""
    target: float
    """At most."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Alone:
    """A server by itself, beside one of before."""

    before: str
    """The commit."""
    start: Cost
    memory: Cost
    requests: Throughput

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "before": self.before,
            "costs": [self.start.to_dict(), self.memory.to_dict()],
            "requests": self.requests.to_dict(),
        }


def on_ray(options: ClusterOptions, folder: Path) -> Throughput:
    """Requests per second of a server that Ray has started, in a cluster, beside one alone."""
    cores = choose_cores()
    with (
        PostgresProcess() as postgres,
        kept_server(folder / "kept", postgres.database("kept")) as kept,
        MeasuredServer(folder / "alone", cores, 10).start() as alone,
        LoadGenerator(folder, cores) as load,
    ):
        kept.settle(cores)
        alone.settle()
        for address in (kept.address, alone.address):
            _teach(options, address)
        kept.settle(cores)
        return _in_turns(options, load, (kept, alone), "a server alone", RAY_TARGET)


def alone(options: ClusterOptions, folder: Path) -> Alone:
    """Start-up, memory and requests per second beside those of an earlier commit."""
    cores, source = choose_cores(), folder / "before"
    _check_out(options.before, source)
    try:

        def now(name: str) -> MeasuredServer:
            return MeasuredServer(folder / f"now-{name}", cores, 10)

        def before(name: str) -> MeasuredServer:
            return _ServerBefore(folder / f"before-{name}", cores, source)

        start, memory = _starts(options, now, before)
        with (
            now("asked").start() as ours,
            before("asked").start() as theirs,
            LoadGenerator(folder, cores) as load,
        ):
            for server in (ours, theirs):
                server.settle()
                _teach(options, server.address)
                server.settle()
            requests = _in_turns(options, load, (ours, theirs), f"the server of {options.before}", ALONE_TARGET)
        return Alone(options.before, start, memory, requests)
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(source)], check=False)


class _ServerBefore(MeasuredServer):
    """A server of another clone."""

    def __init__(self, folder: Path, cores: Cores, source: Path) -> None:
        super().__init__(folder, cores, 10)
        paths = ":".join(str(source / part) for part in (".", "client", "cli", "server", "proto"))
        # Without the folder that we are in, which comes first otherwise, and has packages of the same names.
        self._environment |= {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", **ONE_THREAD}


def _check_out(commit: str, folder: Path) -> None:
    made = subprocess.run(
        ["git", "-C", str(ROOT), "worktree", "add", "--detach", "--force", str(folder), commit],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise BenchmarkError(f"there is no commit {commit} to compare with: {made.stderr.strip()}")


def _starts(
    options: ClusterOptions, now: Callable[[str], ServerProcess], before: Callable[[str], ServerProcess]
) -> tuple[Cost, Cost]:
    """Seconds until an empty server serves, and bytes that its front has then."""
    seconds: dict[str, list[float]] = {"now": [], "before": []}
    megabytes: dict[str, list[float]] = {"now": [], "before": []}
    for turn in range(options.starts + 1):
        for name, make in (("now", now), ("before", before)):
            begun = time.perf_counter()
            with make(f"start-{turn}").start() as server:
                took = time.perf_counter() - begun
                if turn:  # the first warms up the system's caches
                    seconds[name].append(took)
                    megabytes[name].append((resident_bytes(server.pid) or 0) / 1e6)
    return _cost("start of an empty server", "s", seconds), _cost("memory of its front", "MB", megabytes)


def _cost(name: str, unit: str, found: dict[str, list[float]]) -> Cost:
    now, before = found["now"], found["before"]
    ratio = statistics.median(mine / other for mine, other in zip(now, before, strict=True))
    return Cost(name, unit, statistics.median(now), statistics.median(before), ratio, 1 / ALONE_TARGET)


def _teach(options: ClusterOptions, address: str) -> None:
    images = images_of(8, options.sizes.images_per_class)
    with Client(address) as client:
        client.create_learner(LEARNER, overrides=SMALL, seed=0)
        teach(client, images)


def _in_turns(
    options: ClusterOptions, load: LoadGenerator, servers: Sequence[Any], beside: str, target: float
) -> Throughput:
    failures, in_flight = 0, options.sizes.in_flight
    order = {"payload": payload(images_of(8, 10), 1), "seconds": options.seconds, "in_flight": in_flight}

    def ask(server: Any) -> Measured:
        nonlocal failures
        before = cpu_seconds(server.pid)
        found = load.ask({**order, "address": server.address})
        spent, answered = cpu_seconds(server.pid) - before, len(found["latencies"])
        failures += sum(found["failures"].values())
        return Measured(answered / found["seconds"], spent / answered)

    ours, theirs = servers
    ask(ours)
    ask(theirs)
    ratios: list[float] = []
    figures = in_turns(lambda: ask(ours), lambda: ask(theirs), options.rounds, ratios)
    name = f"1-image requests, {in_flight} in flight"
    return Throughput(name, "requests/s", beside, *figures, target, failures, ratios=ratios)
