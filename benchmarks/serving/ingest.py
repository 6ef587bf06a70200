"""Bytes per second that are taken durably, beside writing them to SQLite without gRPC.

The other side writes the same blobs with the journal's own settings, to a file beside the journal, in transactions of
as many batches as the server put into one: an acknowledgement follows each commit, so their number shows it.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from benchmarks.serving.bench import Bench
from benchmarks.serving.comparison import Measured, Throughput, in_turns
from benchmarks.serving.options import INGEST_TARGET
from benchmarks.serving.processes import on_cores
from devtools.process_stats import cpu_seconds
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
        bench.client.create_learner(_LEARNER)
        before = cpu_seconds(bench.server.pid)
        order = {"address": bench.server.address, "learner": _LEARNER, "batches": batches, "shape": sizes.ingest_shape}
        found = bench.load.ask(order)
        spent = cpu_seconds(bench.server.pid) - before
        groups.append(max(1, round(batches / max(1, found["acknowledgements"]))))
        bench.client.delete_learner(_LEARNER)
        return Measured(megabytes / found["seconds"], spent / megabytes)

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
