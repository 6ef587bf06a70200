"""Kills, at moments drawn by chance from a seed: of the server and all that belongs to it. After each, all goes on."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import BenchmarkError
from devtools.postgres_process import PostgresProcess
from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.crash.checks import Violations, at_death
from reliability.crash.clients import App, Producer
from reliability.crash.options import CrashOptions
from reliability.crash.proxy import Line
from reliability.crash.stream import NumberedStream

KINDS = ("server", "trainer", "teacher", "connection")
_SETTINGS = {
    "data.automatic_snapshots": 1_000_000,  # every version's snapshot is kept, to be asked afterwards
    "limits.manual_snapshots": 1_000_000,
    "trainer.retry_seconds": 0.1,
    "trainer.attempts": 1000,
    "trainer.niceness": 0,
    "teaching.version_seconds": 0.3,  # lessons become versions of their own where no episode takes them in first
}
_SECONDS_TO_AIM = 10.0


class Chaos:
    """Owns the server, and the database where there is one, so that it can take them away."""

    def __init__(
        self, folder: Path, lines: tuple[Line, Line], stream: NumberedStream, options: CrashOptions, found: Violations
    ) -> None:
        self.folder, self._stream, self._options, self.violations = folder, stream, options, found
        self._lines = dict(zip(("producer's connection", "app's connection"), lines, strict=True))
        self._random = random.Random(f"chaos {options.seed}")
        self._kinds: tuple[str, ...] = KINDS
        self._postgres: PostgresProcess | None = None
        self.store = ""
        """The database's DSN; empty: the journal is in the data folder."""
        settings: dict[str, object] = dict(_SETTINGS)
        if options.store == "postgres":
            self._postgres = PostgresProcess().start()
            self.store = settings["data.store"] = self._postgres.database("crash")
            self._kinds = (*KINDS, "database")
        self.server = ServerProcess(folder, settings, environment=ONE_THREAD)
        self.start_server()
        self.kills: Counter[str] = Counter()
        self.aimed = 0
        """Kills in the middle of an operator's work."""
        self.recoveries: dict[str, list[float]] = {}
        """By kind of kill: seconds until something was acknowledged or learned again. They count from the kill; where
        server or database were killed, from the moment in which they were started again: what is done in between is the
        harness's.
        """

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
                order = self._random.sample(self._kinds, len(self._kinds))
            kind = order.pop()
            self._wait_for_an_operation(producer)
            seen = (producer.acknowledged, producer.learned)
            self.aimed += producer.operator.under_way.is_set()
            begun = self._strike(kind, last, producer)
            self._wait_until_moved(seen, producer, app)
            self.recoveries.setdefault(kind, []).append(time.monotonic() - begun)
            report()

    def _strike(self, kind: str, last: int, producer: Producer) -> float:
        """Kill something; gives the moment from which its recovery counts."""
        if kind == "server":
            self.kill_server(lambda: producer.acknowledged, producer)
            while self.done < last and self._random.random() < self._options.early:
                self._kill_while_starting(producer)
            begun = time.monotonic()
            self.start_server()
            return begun
        if kind == "database":
            return self._kill_database()
        if kind == "trainer":
            self.server.kill_trainer(self._options.patience)
            self.kills["trainer"] += 1
        elif kind == "teacher":
            self.server.kill_teacher(self._options.patience)
            self.kills["teacher"] += 1
        else:
            self._cut()
        return time.monotonic()

    def _wait_for_an_operation(self, producer: Producer) -> None:
        """Now and then: until an operator's work is under way, and a moment longer; not for ever."""
        if self._random.random() < self._options.aimed and producer.operator.under_way.wait(_SECONDS_TO_AIM):
            time.sleep(self._random.uniform(0.0, 0.1))

    def kill_server(self, acknowledged: Callable[[], int], producer: Producer, kind: str = "server") -> None:
        """SIGKILL, and a look at what it left on disk before anything is started again."""
        self._connect(None)
        self.server.kill()
        self.kills[kind] += 1
        lessons = producer.lessons
        data = self.folder / "data"
        at_death(data, self._stream, acknowledged(), self._options, self.violations, lessons, self.store)

    def _kill_database(self) -> float:
        """SIGKILL to PostgreSQL, and a pause without it; gives the moment at which it was started again."""
        assert self._postgres is not None
        self._postgres.kill()
        self.kills["database"] += 1
        time.sleep(self._random.uniform(0.0, self._options.longest_pause))
        begun = time.monotonic()
        self._postgres.start()
        return begun

    def close(self) -> None:
        """Stop the database, if there is one."""
        if self._postgres is not None:
            self._postgres.stop()

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
