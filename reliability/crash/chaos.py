"""Kills, at moments drawn by chance from a seed: the server, the trainer, or a connection. After each, all goes on."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import BenchmarkError
from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.crash.checks import Violations, at_death
from reliability.crash.clients import App, Producer
from reliability.crash.options import CrashOptions
from reliability.crash.proxy import Line
from reliability.crash.stream import NumberedStream

KINDS = ("server", "trainer", "connection")
_SETTINGS = {
    "data.automatic_snapshots": 1_000_000,  # every version's snapshot is kept, to be asked afterwards
    "trainer.retry_seconds": 0.1,
    "trainer.attempts": 1000,
    "trainer.niceness": 0,
    "teaching.version_seconds": 0.3,  # lessons become versions of their own where no episode takes them in first
}


class Chaos:
    """Owns the server, so that it can take it away."""

    def __init__(
        self, folder: Path, lines: tuple[Line, Line], stream: NumberedStream, options: CrashOptions, found: Violations
    ) -> None:
        self.folder, self._stream, self._options, self.violations = folder, stream, options, found
        self._lines = dict(zip(("producer's connection", "app's connection"), lines, strict=True))
        self._random = random.Random(f"chaos {options.seed}")
        self.server = ServerProcess(folder, _SETTINGS, environment=ONE_THREAD)
        self.start_server()
        self.kills: Counter[str] = Counter()
        self.slowest = 0.0
        """Longest time from a kill until something was acknowledged or learned again, in seconds."""

    @property
    def done(self) -> int:
        """Kills so far."""
        return self.kills.total()

    def kills_up_to(self, last: int, producer: Producer, app: App, report: Callable[[], None]) -> None:
        """Kill until there were so many, each kind as often as the others."""
        order: list[str] = []
        while self.done < last:
            time.sleep(self._random.uniform(0.0, self._options.longest_pause))
            if not order:
                order = self._random.sample(KINDS, len(KINDS))
            kind = order.pop()
            seen, begun = (producer.acknowledged, producer.learned), time.monotonic()
            if kind == "server":
                self.kill_server(lambda: producer.acknowledged, producer)
                while self.done < last and self._random.random() < self._options.early:
                    self._kill_while_starting(producer)
                self.start_server()
            elif kind == "trainer":
                self.server.kill_trainer(self._options.patience)
                self.kills["trainer"] += 1
            else:
                self._cut()
            self._wait_until_moved(seen, producer, app)
            self.slowest = max(self.slowest, time.monotonic() - begun)
            report()

    def kill_server(self, acknowledged: Callable[[], int], producer: Producer, kind: str = "server") -> None:
        """SIGKILL, and a look at what it left on disk before anything is started again."""
        self._connect(None)
        self.server.kill()
        self.kills[kind] += 1
        lessons = producer.lessons
        at_death(self.folder / "data", self._stream, acknowledged(), self._options, self.violations, lessons)

    def _connect(self, port: int | None) -> None:
        for line in self._lines.values():
            line.port = port

    def _kill_while_starting(self, producer: Producer) -> None:
        """A kill before the restarted server has taken up its folder."""
        self.server.start(wait=False)
        time.sleep(self._random.uniform(0.0, 4.0))
        self.kill_server(lambda: producer.acknowledged, producer, "server while starting")

    def start_server(self) -> None:
        """Start the server, for the first time or again on the same folder, and let the clients reach it."""
        self.server.start(wait=False)
        self.server.wait_until_ready(self._options.patience)
        self._connect(self.server.port)

    def _cut(self) -> None:
        name = self._random.choice(list(self._lines))
        if not self._lines[name].cut(self._random.randint(1, 6000), self._options.patience):
            raise BenchmarkError(f"the {name} carried nothing that could be cut")
        self.kills[name] += 1

    def _wait_until_moved(self, seen: tuple[int, int], producer: Producer, app: App) -> None:
        deadline = time.monotonic() + self._options.patience
        while producer.acknowledged <= seen[0] and producer.learned <= seen[1]:
            for client in (producer, app):
                if client.failure is not None:
                    raise BenchmarkError(f"a client gave up after kill {self.done}: {client.failure!r}")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"nothing went on within {self._options.patience:g} s after kill {self.done}")
            time.sleep(0.02)
