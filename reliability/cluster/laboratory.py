"""A cluster to break: Ray's head and two machines with a server each, PostgreSQL and the bucket on this one.

Everything is real: Ray, PostgreSQL from a wheel, servers as `sharp serve --cluster` starts them. Only the machines are
network namespaces, and the bucket is a folder that all of them see, or moto's server.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psycopg

from devtools.postgres_process import PostgresProcess
from devtools.server_process import ONE_THREAD, clone_environment
from reliability.cluster.machines import Machine, Network

PORT = 50051
"""Of every server, each on its own machine."""
_SECONDS_TO_START = 300.0
_RAY = str(Path(sys.executable).with_name("ray"))
_NOTICE_QUICKLY = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class Laboratory:
    """The cluster, and how to break and mend it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network()
        self.head = self.network.machine("h")
        self.machines = [self.network.machine("a"), self.network.machine("b")]
        self.postgres = PostgresProcess(self.network.address, 5432 + os.getpid() % 1000)
        self.dsn = ""
        self._environment = clone_environment(
            {
                **ONE_THREAD,
                **_NOTICE_QUICKLY,
                "RAY_gcs_storage": "rocksdb",
                "RAY_gcs_storage_path": str(folder / "gcs"),
                "RAY_worker_niceness": "0",  # Ray's own 15 would be the servers' too
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_DEDUP_LOGS": "0",
            }
        )

    def start(self) -> Self:
        """Start everything, and wait until both servers are there."""
        self.postgres.start()
        self.dsn = self.postgres.database("sharp")
        (self.folder / "objects").mkdir()
        self.start_head()
        for machine in self.machines:
            self.start_machine(machine)
        settings = {
            "cluster.ray": f"{self.head.address}:6379",
            "data.store": self.dsn,
            "data.objects": self.folder / "objects",
            "data.folder": self.folder / "machines",
            "listen.host": "0.0.0.0",
            "listen.port": PORT,
            "http.enabled": False,
            "trust.insecure": True,
            "trainer.retry_seconds": 0.1,
        }
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={str(value)}")]
        self.head.run(
            [sys.executable, "-m", "sharp_server", *flags], self._environment, self._log("command"), _SECONDS_TO_START
        )
        self.until(lambda: len(self.servers()) == len(self.machines), "both servers are there")
        return self

    def start_head(self) -> None:
        """Start Ray's head, for the first time or again."""
        self._ray(self.head, "--head", "--port=6379", "--num-cpus=1", "--include-dashboard=false")

    def start_machine(self, machine: Machine) -> None:
        """Start Ray on a machine that may have a server."""
        address = f"--address={self.head.address}:6379"
        self._ray(machine, address, "--num-cpus=1", '--resources={"sharp": 1}')

    def _ray(self, machine: Machine, *flags: str) -> None:
        shared = [
            f"--node-ip-address={machine.address}",
            f"--temp-dir=/tmp/{machine.name}",
            "--object-store-memory=80000000",
            # On a busy machine Ray would give up waiting for these to be chosen.
            "--dashboard-agent-grpc-port=7001",
            "--dashboard-agent-listen-port=7002",
            "--runtime-env-agent-port=7003",
            "--metrics-export-port=7004",
            "--disable-usage-stats",
        ]
        self.until(lambda: self._started(machine, [*flags, *shared]), f"Ray runs on {machine.name}")

    def _started(self, machine: Machine, flags: list[str]) -> bool:
        try:
            machine.run([_RAY, "start", *flags], self._environment, self._log(machine.name), 300.0)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            machine.kill()
            return False
        return True

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def server_log(self, machine: Machine) -> str:
        """What the server on a machine said."""
        path = self.folder / "machines" / machine.address / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def addresses(self) -> str:
        """Both servers, for a client."""
        return "ipv4:" + ",".join(f"{machine.address}:{PORT}" for machine in self.machines)

    # ---- looking at it ----------------------------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as session:
            return session.execute(query.encode(), values).fetchall()

    def servers(self) -> list[str]:
        """Nodes whose servers are there."""
        with contextlib.suppress(psycopg.Error):
            return [str(node) for (node,) in self.rows("SELECT node FROM cluster_servers ORDER BY node")]
        return []

    def owner(self, learner: str) -> Machine | None:
        """The machine that owns a learner."""
        found = self.rows("SELECT owner FROM learners WHERE name = %s", learner)
        node = str(found[0][0]).partition("/")[0] if found else ""
        return next((machine for machine in self.machines if machine.address == node), None)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = _SECONDS_TO_START) -> float:
        """Wait for something; gives the seconds that it took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds:
                raise RuntimeError(f"it never came in {seconds:.0f} s: {what}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def close(self) -> None:
        """End everything."""
        self.network.close()
        self.postgres.stop()


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[Laboratory]:
    """A laboratory that is cleared in the end."""
    made = Laboratory(folder)
    try:
        yield made.start()
    finally:
        made.close()
