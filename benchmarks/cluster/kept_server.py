"""A server as `sharp serve --cluster` starts it: by a keeper, on a Ray of one machine that is started for it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster.waiting import until
from benchmarks.serving.processes import Cores, pin
from devtools.process_stats import children
from devtools.server_process import ONE_THREAD, clone_environment

_HOST = "127.0.0.1"
_SECONDS_TO_END = 30.0


class KeptServer:
    """Where it serves, and its process."""

    def __init__(self, ports: Path) -> None:
        found = json.loads(ports.read_text())
        self.address, self.pid = f"{_HOST}:{found['port']}", int(found["pid"])

    def settle(self, cores: Cores) -> None:
        """Bind the front and its trainer, each to its core."""
        pin(self.pid, cores.front)
        for child in children(self.pid):
            pin(child, cores.trainer)


@contextlib.contextmanager
def kept_server(folder: Path, store: str) -> Iterator[KeptServer]:
    """Start Ray and a server on it; both end with the context."""
    ray_folder = Path(tempfile.mkdtemp(prefix="sharp-ray-", dir="/tmp"))  # a name of a socket is in it: a short one
    environment = clone_environment({**ONE_THREAD, "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"})
    port = _free_port()
    folder.mkdir(parents=True)
    servers = folder / "servers"
    log = (folder / "ray.log").open("ab")
    flags = [
        *("--head", f"--port={port}", f"--node-ip-address={_HOST}", f"--temp-dir={ray_folder}", "--num-cpus=1"),
        *("--resources", '{"sharp": 1}', "--include-dashboard=false", "--object-store-memory=80000000", "--block"),
    ]
    with log, contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, ray_folder, ignore_errors=True)
        stack.callback(_end_server, servers)
        ray = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), "start", *flags], env=environment, stdout=log, stderr=log
        )
        stack.callback(_end, ray)
        settings = {
            "cluster.ray": f"{_HOST}:{port}",
            "data.store": store,
            "data.objects": folder / "objects",
            "data.folder": servers,
            "listen.port": 0,
            "http.port": 0,
            "log.level": "warning",
        }
        argv = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "sharp_server", *argv]
        until(
            lambda: not subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode,
            "Ray takes a keeper",
        )
        until(lambda: _ports(servers), "the keeper's server serves")
        yield KeptServer(_ports(servers)[0])


def _ports(servers: Path) -> list[Path]:
    """The one file of ports that there is, once there is one: its folder has the address that Ray knows us by."""
    return list(servers.glob("*/ports.json"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_server(servers: Path) -> None:
    """The server outlives its keeper, so it is ended by itself."""
    for ports in _ports(servers):
        pid = int(json.loads(ports.read_text())["pid"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the server ends", _SECONDS_TO_END)  # type: ignore[misc]
