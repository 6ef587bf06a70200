"""Requests made up from the server's own description of its HTTP routes, by schemathesis: right ones and wrong ones.

    python -m reliability.http --examples 500 --output benchmarks/results/http.json

No answer may be a fault of the server (500), and none may be one that the description does not allow: its status, its
type of content, its content. The planted learner must answer as before in the end. Streams of events, which never end,
are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
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
from sharp_client import Client

Operation = APIOperation[Any, Any, Any, Any]

PLANTED = "planted"
SETTINGS = {"http.enabled": True, "http.port": 0, "limits.version_wait_seconds": 0.05, "limits.learners": 50}
_CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@dataclass
class SchemaReport:
    """What became of the requests."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By operation and status."""
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        routes: dict[str, dict[str, int]] = {}
        for (name, status), count in sorted(self.statuses.items()):
            routes.setdefault(name, {})[str(status)] = count
        return {"requests": sum(self.statuses.values()), "failures": self.failures, "routes": routes}


def plant(server: ServerProcess) -> None:
    """A learner that requests may find, with a snapshot."""
    rng = np.random.default_rng(0)
    with Client(server.address) as client:
        learner = client.learner(PLANTED)
        with learner.learn() as stream:
            stream.send(np.concatenate([rng.random((20, 2)), rng.random((20, 2)) + 2]), ["low"] * 20 + ["high"] * 20)
            stream.end_episode().wait(120)
        learner.snapshot("planted")


def attack(address: str, examples: int) -> SchemaReport:
    """Ask everything that the description offers, so often each."""
    report = SchemaReport()
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json").exclude(path_regex="/events$")
    for result in schema.get_all_operations():
        if isinstance(result, Err):
            report.failures.append(f"the description itself: {result.err()}")
            continue
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _ask(operation, mode, address, examples, report)
            except Unsatisfiable:
                continue  # a route without anything that could be wrong
            except Exception as error:  # whatever the checks raise is a finding
                report.failures.append(f"{operation.method.upper()} {operation.path}: {error}"[:2000])
    return report


def _ask(operation: Operation, mode: GenerationMode, address: str, examples: int, report: SchemaReport) -> None:
    destroys = operation.method == "delete" and operation.path == "/api/learners/{name}"
    name = f"{operation.method.upper()} {operation.path}"

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), planted=st.integers(0, 3))
    def ask(case: Any, planted: int) -> None:
        if planted and not destroys and "name" in case.path_parameters:
            case.path_parameters["name"] = PLANTED
        response = case.call(base_url=address, timeout=60)
        report.statuses[name, response.status_code] += 1
        assert response.status_code != 500, f"a fault of the server: {response.text[:300]}"
        case.validate_response(response, checks=_CHECKS)

    ask()


def unharmed(address: str) -> bool:
    """Whether the server is well, as far as it says."""
    return httpx.get(f"{address}/healthz", timeout=60).status_code == 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if anything broke."""
    parser = argparse.ArgumentParser(prog="python -m reliability.http", description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=500, help="requests of each kind for each route")
    parser.add_argument("--output", type=Path, help="JSON file for the result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        with ServerProcess(Path(folder), SETTINGS, environment=ONE_THREAD).start() as server:
            plant(server)
            address = f"http://127.0.0.1:{server.http_port}"
            report = attack(address, options.examples)
            well = unharmed(address)
    codes: Counter[int] = Counter()
    for (_, status), count in report.statuses.items():
        codes[status] += count
    lines = [
        f"{sum(codes.values())} requests: " + ", ".join(f"{code} {count}" for code, count in sorted(codes.items()))
    ]
    if not well:
        report.failures.append("the server is not well any more")
    lines += report.failures
    if options.output is not None:
        content = {"versions": versions(), "machine": machine(), "examples": options.examples, **report.to_dict()}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
