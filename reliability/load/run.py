"""One run: capacity first, then a fixed share of it for minutes, slice by slice."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.reporting.runner import ReportProgress, silently
from benchmarks.serving.bench import images_of, payload, teach_all
from benchmarks.serving.options import TINY, ServingOptions, Sizes
from benchmarks.serving.processes import LoadGenerator, MeasuredServer, Program, choose_cores
from reliability.load.background_load import BackgroundLoad
from reliability.load.result import PREDICT, PREDICT_IDLE, LoadOptions, LoadResult, Slice
from sharp_client import Client

_SETTINGS = {"limits.streams": 2000, "http.enabled": True, "http.port": 0}
_NICENESS = 10
"""Of the trainer; when only a little is tried out, nobody else may starve it."""
_IDLE_PERIOD = 10.0
"""Seconds after which each idle connection asks once."""


def run(options: LoadOptions, progress: ReportProgress = silently) -> LoadResult:
    """Load a server; progress is counted in seconds of load."""
    result = LoadResult(options)
    sizes, niceness = (Sizes(), _NICENESS) if options.full_sizes else (TINY, 0)
    images, cores = images_of(8, sizes.images_per_class), choose_cores()
    with tempfile.TemporaryDirectory(prefix="sharp-load-") as place:
        folder = Path(place)
        with (
            MeasuredServer(folder, cores, niceness, _SETTINGS).start() as server,
            LoadGenerator(folder, cores) as generator,
        ):
            progress("teaching", 0.0, 60.0 * options.minutes)
            with Client(server.address) as client:
                teach_all(client, images, ServingOptions(sizes=sizes))
            server.settle()
            order = {"payload": payload(images, 1), "address": server.address}
            with (
                _idle_connections(folder, order, result, progress),
                BackgroundLoad(
                    server.address, f"http://127.0.0.1:{server.http_port}", images, sizes.swap_examples, result.calls
                ) as background,
            ):
                progress("measuring capacity")
                result.capacity = _capacity(generator, order, result)
                _send_load(generator, order, server, result, progress)
            result.background = dict(background.done)
        result.exit_code = server.exit_code
    return result


def _capacity(generator: LoadGenerator, order: dict[str, Any], result: LoadResult) -> float:
    """Requests per second that are answered with many under way."""
    options = result.options
    found = generator.ask({**order, "in_flight": options.in_flight, "seconds": options.capacity_seconds})
    _count(result, found)
    return len(found["latencies"]) / float(found["seconds"])


def _send_load(
    generator: LoadGenerator,
    order: dict[str, Any],
    server: MeasuredServer,
    result: LoadResult,
    progress: ReportProgress,
) -> None:
    """Ask at the fixed rate until the time is over."""
    options, begun = result.options, time.perf_counter()
    while (passed := time.perf_counter() - begun) < 60.0 * options.minutes:
        progress(f"{result.rate:,.0f} requests/s", passed)
        found = generator.ask({**order, "rate": result.rate, "seconds": options.slice_seconds})
        _count(result, found)
        latencies = found["latencies"] or [float("nan")]
        result.latencies.add(passed, found["latencies"])
        result.slices.append(
            Slice(
                start=passed,
                answered=len(found["latencies"]),
                failed=found["failures"],
                p50=float(np.percentile(latencies, 50)),
                p99=float(np.percentile(latencies, 99)),
                generator_share=found["cpu"] / found["seconds"],
            )
        )
        result.connections_seen = max(result.connections_seen, connections_of(server.port))
        result.memory.sample((time.perf_counter() - begun) / 60.0, server.memory())
        result.descriptors.add(server.open_descriptors())
        result.files.add(sum(len(files) for _, _, files in os.walk(server.data)))
    result.seconds = time.perf_counter() - begun


def _count(result: LoadResult, found: dict[str, Any]) -> None:
    result.calls.add(PREDICT, "OK", count=len(found["latencies"]))
    for code, count in found["failures"].items():
        result.calls.add(PREDICT, code, found["messages"].get(code, ""), count)


@contextmanager
def _idle_connections(
    folder: Path, order: dict[str, Any], result: LoadResult, progress: ReportProgress
) -> Iterator[None]:
    """Hold many connections for a while; how their calls ended is counted."""
    options = result.options
    with Program(["-m", "reliability.load.idle_connections"], frozenset(), folder / "idle.log") as holder:
        progress(f"opening {options.connections} connections")
        pause = _IDLE_PERIOD / options.connections
        answer = holder.ask({**order, "connections": options.connections, "pause": pause})
        result.connected = answer["connected"]
        yield
        if holder.process.stdin is None:
            raise BenchmarkError("the idle connections can't be asked to end")
        holder.process.stdin.close()
        said = holder.read()
        holder.process.wait()
    for code, count in Counter(said["codes"]).items():
        result.calls.add(PREDICT_IDLE, code, said["messages"].get(code, ""), count)
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
