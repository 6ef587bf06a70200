"""One run of all measurements."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reporting.machine import machine, versions
from benchmarks.reporting.runner import ReportProgress, silently
from benchmarks.serving.bench import prepared
from benchmarks.serving.comparison import Throughput
from benchmarks.serving.ingest import ingest, ingest_on_postgres
from benchmarks.serving.latency import Latencies, latencies
from benchmarks.serving.options import ServingOptions, Sizes
from benchmarks.serving.pages import PageResult, pages
from benchmarks.serving.processes import Cores
from benchmarks.serving.teaching import TeachingResult, teaching
from benchmarks.serving.throughput import messages, single_images
from devtools.postgres_process import is_installed


@dataclass
class ServingResult:
    """What was measured; a part that was not asked for is empty."""

    options: ServingOptions
    cores: Cores = field(default_factory=Cores)
    throughput: list[Throughput] = field(default_factory=list)
    latencies: Latencies | None = None
    teaching: TeachingResult | None = None
    pages: PageResult | None = None

    @property
    def failures(self) -> int:
        """Requests that were not answered, over everything."""
        states = [] if self.latencies is None else [state for state, _, _ in self.latencies.rows()]
        taught = 0 if self.teaching is None else self.teaching.failures
        watched = 0 if self.pages is None else self.pages.failures
        return sum(row.failures for row in self.throughput) + sum(s.failures for s in states) + taught + watched

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "version": versions()["engine"],
            "versions": versions(),
            "machine": machine(),
            "cores": self.cores.describe(),
            "settings": {**asdict(self.options), "full_sizes": self.options.sizes == Sizes()},
            "throughput": [row.to_dict() for row in self.throughput],
            "latency": None if self.latencies is None else self.latencies.to_dict(),
            "teaching": None if self.teaching is None else self.teaching.to_dict(),
            "pages": None if self.pages is None else self.pages.to_dict(),
            "failures": self.failures,
        }


def run(options: ServingOptions, progress: ReportProgress = silently) -> ServingResult:
    """Measure; `progress` hears what is being measured now."""
    result = ServingResult(options)
    progress("starting the server and teaching it")
    with (
        tempfile.TemporaryDirectory(prefix="sharp-serving-") as folder,
        prepared(options, Path(folder)) as bench,
    ):
        result.cores = bench.cores
        requests: Throughput | None = None
        if {"requests", "latency", "page"} & set(options.parts):
            progress("throughput: single images")
            requests = single_images(bench)
            if "requests" in options.parts:  # else it only says at which rate to ask
                result.throughput.append(requests)
        if "messages" in options.parts:
            progress("throughput: large messages")
            result.throughput.append(messages(bench))
        if "ingest" in options.parts:
            progress("throughput: Learn")
            result.throughput.append(ingest(bench))
            if is_installed():
                progress("throughput: Learn on PostgreSQL")
                result.throughput.append(ingest_on_postgres(bench))
        if requests is not None and "latency" in options.parts:
            result.latencies = latencies(bench, requests.ours.rate / 2, progress)
        if requests is not None and "page" in options.parts:
            result.pages = pages(bench, requests.ours.rate / 2, progress)
        if "teach" in options.parts:
            result.teaching = teaching(bench, progress)
    return result
