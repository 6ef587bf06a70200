"""A cluster to break: Ray's head and two machines with a server each, PostgreSQL and the bucket on this one.

Everything is real: Ray, PostgreSQL from a wheel, servers as `sharp serve --cluster` starts them. Only the machines are
network namespaces, and the bucket is a folder that all of them see, or moto's server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import psycopg

from devtools.postgres_process import PostgresProcess
from devtools.server_process import ONE_THREAD, clone_environment
from reliability.cluster.machines import Machine, Network

PORT = 50051
"""Of every server, each on its own machine."""
_SECONDS_TO_START = 120.0
_SECONDS_TO_WAIT = 60.0
_RAY = str(Path(sys.executable).with_name("ray"))
_NOTICE_QUICKLY = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class Laboratory:
    """The cluster, and how to break and repair it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network()
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
        self.head, *self.machines = (self.network.machine(name) for name in ("head", "a", "b"))
        self.postgres.start()
        self.dsn = self.postgres.database("sharp")
        (self.folder / "objects").mkdir()
        self.start_head()
        with ThreadPoolExecutor(len(self.machines)) as threads:
            list(threads.map(self.start_machine, self.machines))
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
        self.until(lambda: len(self.servers()) == len(self.machines), "both servers are there", _SECONDS_TO_START)
        return self

    def start_head(self) -> None:
        """Start Ray's head, for the first time or again."""
        # Ray takes the other machines' processes, which it can see here, for its own of before, if this is left of it.
        (_ray_folder(self.head) / "ray_current_cluster").unlink(missing_ok=True)
        without = ("--include-dashboard=false", "--no-monitor")  # what nobody uses here
        self._ray(self.head, "--head", "--port=6379", "--num-cpus=1", *without)

    def start_machine(self, machine: Machine) -> None:
        """Start Ray on a machine that may have a server."""
        address = f"--address={self.head.address}:6379"
        self._ray(machine, address, "--num-cpus=1", '--resources={"sharp": 1}')

    def _ray(self, machine: Machine, *flags: str) -> None:
        shared = [
            f"--node-ip-address={machine.address}",
            f"--temp-dir={_ray_folder(machine)}",
            "--object-store-memory=80000000",
            # On a busy machine Ray would give up waiting for these to be chosen.
            "--dashboard-agent-grpc-port=7001",
            "--dashboard-agent-listen-port=7002",
            "--runtime-env-agent-port=7003",
            "--metrics-export-port=7004",
            "--disable-usage-stats",
        ]
        try:
            self.until(lambda: self._started(machine, [*flags, *shared]), "Ray runs", _SECONDS_TO_START)
        except TimeoutError as error:
            said = self._log(machine.name).read_text(errors="replace").strip()
            raise TimeoutError(f"{error} on {machine.name}: {said[-1000:]}") from None

    def _started(self, machine: Machine, flags: list[str]) -> bool:
        try:
            machine.run([_RAY, "start", *flags], self._environment, self._log(machine.name), _SECONDS_TO_WAIT)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            self._keep_complaints(machine)
            machine.kill()
            return False
        return True

    def _keep_complaints(self, machine: Machine) -> None:
        """Ray's own logs go with its folder: what its raylet ended with is kept in ours."""
        with self._log(machine.name).open("a") as log:
            for path in sorted(_ray_folder(machine).glob("session_*/logs/raylet*.err")):
                log.write(f"{path.name}:\n{path.read_text(errors='replace')[:2000]}\n")

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

    def until(self, condition: Callable[[], Any], what: str, seconds: float = _SECONDS_TO_WAIT) -> float:
        """Wait for something; gives the seconds that it took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds:
                raise TimeoutError(f"in {seconds:.0f} s it did not come to this: {what}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def close(self) -> None:
        """End everything, and leave nothing behind; what can't be ended keeps nothing else."""
        with contextlib.ExitStack() as stack:
            for machine in self.network.machines:
                stack.callback(shutil.rmtree, _ray_folder(machine), ignore_errors=True)
            stack.callback(self.network.close)
            stack.callback(self.postgres.stop)


def _ray_folder(machine: Machine) -> Path:
    """Ray's, of one machine: a name of a socket is in it, which must be short."""
    return Path("/tmp") / machine.name


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[Laboratory]:
    """A laboratory that is cleared in the end."""
    made = Laboratory(folder)
    try:
        yield made.start()
    finally:
        made.close()
