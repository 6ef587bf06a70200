"""`sharp health` against a server that speaks nothing but grpc.health.v1, in the clear and with mutual TLS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from typer.testing import CliRunner

from sharp_cli.health import READINESS
from sharp_cli.main import app

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@contextmanager
def healthy(ready: bool, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """A server that lives, and is ready or not; gives its address."""
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("", SERVING)
    servicer.set(READINESS, SERVING if ready else NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = (
        server.add_insecure_port("localhost:0")
        if credentials is None
        else server.add_secure_port("localhost:0", credentials)
    )
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


def ask(*words: str) -> Any:
    return CliRunner().invoke(app, ["health", *words])


def test_a_server_that_takes_requests_is_healthy() -> None:
    with healthy(ready=True) as address:
        assert ask("-a", address).exit_code == 0 and ask("-a", address, "--live").exit_code == 0
        assert ask("-a", address, "--json").stdout == '{"healthy": true, "status": "serving"}\n'


def test_a_server_that_loads_or_stops_lives_and_is_not_healthy() -> None:
    with healthy(ready=False) as address:
        done = ask("-a", address)
        assert done.exit_code == 1 and done.stderr == f"sharp: {address}: not serving\n"
        assert ask("-a", address, "--live").exit_code == 0
        assert ask("-a", address, "--json").exit_code == 1


def test_nobody_there_is_one_line_and_1() -> None:
    done = ask("-a", "localhost:1")
    assert done.exit_code == 1 and done.stdout == "" and "unavailable" in done.stderr and done.stderr.count("\n") == 1


def test_it_does_not_load_torch() -> None:
    program = """
import sys
from sharp_cli.main import app
try:
    app(["health", "-a", sys.argv[1]], prog_name="sharp")
finally:
    sys.exit("torch" in sys.modules or "sharp_engine" in sys.modules)
"""
    with healthy(ready=True) as address:
        done = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "serving\n", done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_it_speaks_mutual_tls_and_needs_no_token(tmp_path: Path) -> None:
    made = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=sharp.example", "-addext", "subjectAltName=DNS:sharp.example",
        "-keyout", "key.pem", "-out", "certificate.pem",
    ]  # fmt: skip
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    key, certificate = (str(tmp_path / name) for name in ("key.pem", "certificate.pem"))
    pair = (Path(key).read_bytes(), Path(certificate).read_bytes())
    credentials = grpc.ssl_server_credentials([pair], pair[1], require_client_auth=True)
    trusting = ["--ca-file", certificate, "--server-name", "sharp.example"]
    with healthy(ready=True, credentials=credentials) as address:
        assert ask("-a", address, *trusting, "--cert-file", certificate, "--key-file", key).exit_code == 0
        assert ask("-a", address, *trusting, "--timeout", "2").exit_code == 1
        assert ask("-a", address, "--timeout", "2").exit_code == 1
