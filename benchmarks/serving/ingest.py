"""Bytes per second that are taken durably, beside writing them to SQLite without gRPC.

The other side writes the same blobs with the journal's own settings, to a file beside the journal, in transactions of
as many batches as the server put into one: an acknowledgement follows each commit, so their number shows it.

Where there is a PostgreSQL to start, a second server that has its journal there is measured beside the first one.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from pathlib import Path

from benchmarks.serving.bench import Bench
from benchmarks.serving.comparison import Measured, Throughput, in_turns
from benchmarks.serving.options import INGEST_TARGET, POSTGRES_TARGET
from benchmarks.serving.processes import MeasuredServer, on_cores
from devtools.postgres_process import PostgresProcess
from devtools.process_stats import cpu_seconds
from sharp_client import Client
from sharp_server.storage.sqlite import schema

_LEARNER = "ingest"


def ingest(bench: Bench) -> Throughput:
    """Megabytes per second of large batches with durable acknowledgement."""
    sizes = bench.options.sizes
    (examples, width), batches = sizes.ingest_shape, sizes.ingest_batches
    megabytes = batches * examples * width / 1e6
    plain = _PlainJournal(bench.folder / "data" / "plain.db", examples, width)
    groups: list[int] = []
    ratios: list[float] = []

    def served() -> Measured:
        measured, group = _learn(bench, bench.server, bench.client)
        groups.append(group)
        return measured

    def written() -> Measured:
        with on_cores(bench.cores.front):
            wall, cpu = plain.write(batches, groups[-1])
        return Measured(megabytes / wall, cpu / megabytes)

    served()
    written()
    ours, ceiling, ratio, cpu_ratio = in_turns(served, written, sizes.rounds, ratios)
    plain.close()
    group = statistics.median(groups)
    return Throughput(
        f"Learn, {examples} × {width} bytes, durable",
        "MB/s",
        "the same blobs to SQLite",
        *(ours, ceiling, ratio, cpu_ratio, INGEST_TARGET),
        note=f"{group:g} batches per transaction on both sides",
        ratios=ratios,
    )


def ingest_on_postgres(bench: Bench) -> Throughput:
    """The same on a server whose journal is in PostgreSQL, beside the one with SQLite."""
    sizes = bench.options.sizes
    examples, width = sizes.ingest_shape
    groups: list[int] = []
    ratios: list[float] = []
    folder = bench.folder / "on-postgres"
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(PostgresProcess())
        more = {"data.store": postgres.database("serving")}
        server = MeasuredServer(folder, bench.cores, bench.options.niceness, more)
        stack.enter_context(server.start())
        server.settle()
        client = stack.enter_context(Client(server.address))

        def on_postgres() -> Measured:
            measured, group = _learn(bench, server, client)
            groups.append(group)
            return measured

        def on_sqlite() -> Measured:
            return _learn(bench, bench.server, bench.client)[0]

        on_postgres()
        on_sqlite()
        ours, other, ratio, cpu_ratio = in_turns(on_postgres, on_sqlite, sizes.rounds, ratios)
    return Throughput(
        f"Learn, {examples} × {width} bytes, durable in PostgreSQL",
        "MB/s",
        "the same server on SQLite",
        *(ours, other, ratio, cpu_ratio, POSTGRES_TARGET),
        note=f"{statistics.median(groups):g} batches per transaction; processor time without PostgreSQL's own",
        ratios=ratios,
    )


def _learn(bench: Bench, server: MeasuredServer, client: Client) -> tuple[Measured, int]:
    """Send all batches to a server; gives that, and how many batches it put into a transaction."""
    sizes = bench.options.sizes
    (examples, width), batches = sizes.ingest_shape, sizes.ingest_batches
    megabytes = batches * examples * width / 1e6
    client.create_learner(_LEARNER, overrides=bench.options.overrides)
    before = cpu_seconds(server.pid)
    order = {"address": server.address, "learner": _LEARNER, "batches": batches, "shape": sizes.ingest_shape}
    found = bench.load.ask(order)
    spent = cpu_seconds(server.pid) - before
    client.delete_learner(_LEARNER)
    group = max(1, round(batches / max(1, found["acknowledgements"])))
    return Measured(megabytes / found["seconds"], spent / megabytes), group


class _PlainJournal:
    """A file with the journal's tables and settings, written from here."""

    def __init__(self, path: Path, examples: int, width: int) -> None:
        self._x, self._y = os.urandom(examples * width), bytes(4 * examples)
        self._connection = schema.connect(path)
        schema.create(self._connection)

    def write(self, batches: int, group: int) -> tuple[float, float]:
        """Wall and processor seconds of writing; what was written is deleted again, as the server's is."""
        connection = self._connection
        begun, cpu = time.perf_counter(), time.process_time()
        for first in range(0, batches, group):
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(first, min(first + group, batches)):
                connection.execute("INSERT INTO examples (y, x) VALUES (?, ?)", (self._y, self._x))
            connection.execute("COMMIT")
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        connection.execute("DELETE FROM examples")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return wall, cpu

    def close(self) -> None:
        self._connection.close()
