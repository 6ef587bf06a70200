"""Requests made up from the server's own description of its HTTP routes, by schemathesis: right ones and wrong ones.

    python -m reliability.http --examples 500 --output benchmarks/results/http.json

No answer may be a fault of the server (500), and none may be one that the description does not allow: its status, its
type of content, its content. What has no description (metrics, health, the page) and streams of events, which never
end, are asked plainly, as often. The planted learner, which nothing names but to ask, must answer as before in the end,
and memory must not grow.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import content_type_conformance, response_schema_conformance, status_code_conformance
from schemathesis.core.result import Err

from benchmarks.reporting.machine import machine, versions
from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.fuzz.run import GROWTH_BOUND
from reliability.memory import Memory
from sharp_client import Client

Operation = APIOperation[Any, Any, Any, Any]

PLANTED, VICTIM = "planted", "victim"
PLAIN = ("/metrics", "/healthz", "/", "/docs", "/api/events", f"/api/learners/{VICTIM}/events")
PER_UNIT = 10_000
"""Slopes of memory are given per this many requests."""
SETTINGS = {"http.enabled": True, "http.port": 0, "limits.version_wait_seconds": 0.05, "limits.learners": 50}
_REQUESTS_PER_SAMPLE = 25
_CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@dataclass
class SchemaReport:
    """What became of the requests."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By operation and status."""
    failures: list[str] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    planted_same: bool = False
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        """All of them."""
        return sum(self.statuses.values())

    def count(self, name: str, status: int, server: ServerProcess) -> None:
        """One answer; now and then the server's memory is looked at too."""
        self.statuses[name, status] += 1
        if self.requests % _REQUESTS_PER_SAMPLE == 0:
            self.memory.sample(self.requests / PER_UNIT, server.memory())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        routes: dict[str, dict[str, int]] = {}
        for (name, status), count in sorted(self.statuses.items()):
            routes.setdefault(name, {})[str(status)] = count
        return {
            "requests": self.requests,
            "seconds": self.seconds,
            "failures": self.failures,
            "planted_same": self.planted_same,
            "memory": {**self.memory.to_dict(), "slopes_per": f"{PER_UNIT} requests", "growth_bound_mb": GROWTH_BOUND},
            "routes": routes,
        }


def run(server: ServerProcess, examples: int) -> SchemaReport:
    """Plant learners, ask everything, and look at what is left."""
    begun = time.monotonic()
    plant(server)
    before = planted_answer(server)
    report = attack(server, examples)
    report.planted_same = planted_answer(server) == before
    if not report.planted_same:
        report.failures.append("the planted learner answers otherwise than before")
    report.failures += report.memory.grown(GROWTH_BOUND)
    report.seconds = time.monotonic() - begun
    return report


def plant(server: ServerProcess) -> None:
    """A learner that must stay as it is, and one that requests may do anything to; each with a snapshot."""
    rng = np.random.default_rng(0)
    x, y = np.concatenate([rng.random((20, 2)), rng.random((20, 2)) + 2]), ["low"] * 20 + ["high"] * 20
    with Client(server.address) as client:
        for name in (PLANTED, VICTIM):
            learner = client.learner(name)
            with learner.learn() as stream:
                stream.send(x, y)
                stream.end_episode().wait(120)
            learner.snapshot("planted")


def planted_answer(server: ServerProcess) -> dict[str, Any]:
    """What the planted learner says, to the last bit."""
    with Client(server.address) as client:
        found = client.predict(PLANTED, np.linspace(0.0, 3.0, 40).reshape(20, 2))
        return {
            "labels": list(found.labels),
            "vote_shares": found.vote_shares.tolist(),
            "distances": found.distances.tolist(),
            "model_version": found.model_version,
        }


def attack(server: ServerProcess, examples: int) -> SchemaReport:
    """Ask everything that the description offers, so often each, and what it leaves out."""
    report, address = SchemaReport(), f"http://127.0.0.1:{server.http_port}"
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json").exclude(path_regex="/events$")
    for result in schema.get_all_operations():
        if isinstance(result, Err):
            report.failures.append(f"the description itself: {result.err()}")
            continue
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _ask(operation, mode, server, examples, report)
            except Unsatisfiable:
                continue  # a route without anything that could be wrong
            except Exception as error:  # whatever the checks raise is a finding
                report.failures.append(f"{operation.method.upper()} {operation.path}: {error}"[:2000])
        _tidy(server)
    with httpx.Client(base_url=address, timeout=60) as client:
        for path in PLAIN:
            for _ in range(examples):
                _ask_plainly(client, path, server, report)
    return report


def _tidy(server: ServerProcess) -> None:
    """Delete what requests made: as many learners as there may be would look like memory that grows."""
    with Client(server.address) as client:
        for learner in client.list_learners():
            if learner.name not in (PLANTED, VICTIM):
                client.delete_learner(learner.name)


def _ask_plainly(client: httpx.Client, path: str, server: ServerProcess, report: SchemaReport) -> None:
    """Ask, read what comes first, and leave."""
    with client.stream("GET", path) as response:
        first = next(response.iter_raw(), b"")
    report.count(f"GET {path}", response.status_code, server)
    if response.status_code != 200 or not first:
        report.failures.append(f"GET {path} answered {response.status_code} and {first[:100]!r}")


def _ask(
    operation: Operation, mode: GenerationMode, server: ServerProcess, examples: int, report: SchemaReport
) -> None:
    destroys = operation.method == "delete" and operation.path == "/api/learners/{name}"
    only_asks = operation.method == "get" or operation.path.endswith(("/predict", "/predict/images", "/infer"))
    known = (VICTIM, VICTIM, PLANTED if only_asks else VICTIM)
    name = f"{operation.method.upper()} {operation.path}"

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), learner=st.sampled_from(("", *known)))
    def ask(case: Any, learner: str) -> None:
        if learner and not destroys and "name" in case.path_parameters:
            case.path_parameters["name"] = learner
        response = case.call(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60)
        report.count(name, response.status_code, server)
        assert response.status_code != 500, f"a fault of the server: {response.text[:300]}"
        case.validate_response(response, checks=_CHECKS)

    ask()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if anything broke."""
    parser = argparse.ArgumentParser(prog="python -m reliability.http", description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=500, help="requests of each kind for each route")
    parser.add_argument("--output", type=Path, help="JSON file for the result")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder), SETTINGS, environment=ONE_THREAD).start() as server,
    ):
        report = run(server, options.examples)
    codes: Counter[int] = Counter()
    for (_, status), count in report.statuses.items():
        codes[status] += count
    lines = [
        f"{report.requests} requests in {report.seconds:.0f} s: "
        + ", ".join(f"{code} {count}" for code, count in sorted(codes.items())),
        *(
            f"memory of the {name}: {trace.describe_slope()} MB per {PER_UNIT:,} requests"
            for name, trace in report.memory.traces.items()
        ),
        *report.failures,
    ]
    if options.output is not None:
        content = {"versions": versions(), "machine": machine(), "examples": options.examples, **report.to_dict()}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
