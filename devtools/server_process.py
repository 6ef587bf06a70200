"""A real server as a process: started on a port of the system's choice, killed or stopped, started again on its folder.

Everything that needs a running server uses this class: tests, benchmarks, reliability runs, the demo. It must never
touch a process that it did not start, and never hide that one failed to start or to stop.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Protocol, Self

from devtools import process_stats
from devtools.process_stats import children, open_descriptors, resident_bytes

ROOT = Path(__file__).parents[1]
START_SECONDS = 180.0
"""After this long a server that does not serve yet never will, on however busy a machine."""
STOP_SECONDS = 180.0
"""The same for one that was asked to stop."""
ONE_THREAD: Mapping[str, str] = MappingProxyType({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
"""Environment in which numerical libraries use one thread: figures do not depend on the machine's cores."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
TRAINER = "sharp-trainer"
"""What the process that trains calls itself."""
TEACHER = "sharp-teacher"
"""What the process that teaches calls itself."""
_NAMES = {TRAINER: "trainer", TEACHER: "teacher"}
"""What a process calls itself → what we call it."""
_LAST_LINES = 20


class ServerProcessError(RuntimeError):
    """A server process ended, never began to serve, or did not stop. The message ends with the end of its log."""


def clone_environment(more: Mapping[str, str] = _NOTHING) -> dict[str, str]:
    """The environment without SHARP_* settings, and with this clone's packages before installed ones."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHARP_")}
    path = os.pathsep.join(str(ROOT / part) for part in (".", "client", "cli", "server", "proto"))
    return {**kept, "PYTHONPATH": path, **more}


class Process(Protocol):
    """What is asked of a process that was started; `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None:
        """How it ended, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""

    def kill(self) -> None:
        """SIGKILL."""


Launcher = Callable[[list[str], Mapping[str, str], Path], Process]
"""Starts `python -m sharp_server` with arguments and an environment, and its output in a file."""


class ServerProcess:
    """One server and the folder that outlives it: data in `data`, output in `server.log`.

    `settings` are the server's, by dotted name; they win over the defaults here (ports from the system, no HTTP port).
    As a context manager it stops the server on leaving, and kills it if it does not stop.
    """

    launcher: ClassVar[Launcher | None] = None
    """Starts servers in place of a new Python, for whoever starts very many."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] = _NOTHING,
        *,
        environment: Mapping[str, str] = _NOTHING,
        wrapper: Sequence[str] = (),
        as_command: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.data, self.log = folder, folder / "data", folder / "server.log"
        self._port_file = folder / "ports.json"
        self.settings: dict[str, object] = {
            "data.folder": self.data,
            "listen.port": 0,
            "http.enabled": False,
            "listen.port_file": self._port_file,
            **settings,
        }
        self._environment = clone_environment(environment)
        self._wrapper = tuple(wrapper)
        """A program that starts the server as its only child, such as strace."""
        self._as_command = as_command
        """Start it as `sharp serve` rather than as `python -m sharp_server`."""
        self._process: Process | None = None
        self.port = self.http_port = 0

    # ---- starting ---------------------------------------------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        module = ["sharp_cli", "serve"] if self._as_command else ["sharp_server"]
        return [*self._wrapper, sys.executable, "-m", *module, *self._flags]

    @property
    def _flags(self) -> list[str]:
        as_flags = _flag if self._as_command else _setting
        return [flag for name, value in self.settings.items() for flag in as_flags(name, value)]

    def start(self, wait: bool = True) -> Self:
        """Start it, for the first time or again, and wait until it serves if asked to."""
        if self.running:
            raise ServerProcessError("the server runs already")
        self._port_file.unlink(missing_ok=True)
        self._process = self._launch()
        if wait:
            self.wait_until_ready()
        return self

    def _launch(self) -> Process:
        needs_new_python = self._as_command or self._wrapper or "LD_PRELOAD" in self._environment
        if ServerProcess.launcher is not None and not needs_new_python:
            return ServerProcess.launcher(self._flags, self._environment, self.log)
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log, env=self._environment)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it serves and its ports are known; a server that does not get there is killed."""
        deadline = time.monotonic() + seconds
        while not self._port_file.exists():
            if not self.running:
                raise ServerProcessError(f"the server does not serve: {self.last_lines()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerProcessError(f"the server does not serve after {seconds:g} s: {self.last_lines()}")
            time.sleep(0.02)
        ports = json.loads(self._port_file.read_text(encoding="utf-8"))
        self.port, self.http_port = int(ports["port"]), int(ports["http_port"])

    @property
    def address(self) -> str:
        """Where it serves, since it is ready."""
        return f"127.0.0.1:{self.port}"

    # ---- ending -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL: it gets no chance to save anything. Its trainer ends with it."""
        if self._wrapper and self.running:
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def kill_trainer(self, seconds: float = START_SECONDS) -> None:
        """SIGKILL to the training process, as soon as there is one."""
        self._kill_child(TRAINER, seconds)

    def kill_teacher(self, seconds: float = START_SECONDS) -> None:
        """SIGKILL to the teaching process, as soon as there is one."""
        self._kill_child(TEACHER, seconds)

    def _kill_child(self, name: str, seconds: float) -> None:
        while True:
            try:
                return os.kill(self._wait_for(name, seconds), signal.SIGKILL)
            except ProcessLookupError:  # it ended by itself a moment ago, and another one follows
                continue

    def terminate(self) -> None:
        """SIGTERM, as a container's runtime sends it, and no waiting; nothing if it has ended."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM, and wait until it has ended; returns its exit code. One that does not end is killed."""
        self.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerProcessError(f"the server did not stop within {seconds:g} s: {self.last_lines()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()

    # ---- looking at it ----------------------------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The process that was started last; it may have ended."""
        if self._process is None:
            raise ServerProcessError("the server was never started")
        return self._process

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self.process.poll()

    @property
    def pid(self) -> int:
        """The front process: also where a wrapper started it, in which case it is the wrapper's only child."""
        pid = self.process.pid
        return next(iter(children(pid)), pid) if self._wrapper else pid

    def find_trainer(self) -> int | None:
        """The process that trains, if there is one now."""
        return self._find(TRAINER)

    def trainer_pid(self, seconds: float = START_SECONDS) -> int:
        """The process that trains, as soon as there is one."""
        return self._wait_for(TRAINER, seconds)

    def teacher_pid(self, seconds: float = START_SECONDS) -> int:
        """The process that teaches, as soon as there is one."""
        return self._wait_for(TEACHER, seconds)

    def _find(self, name: str) -> int | None:
        return next((child for child in children(self.pid) if process_stats.name(child) == name), None)

    def _wait_for(self, name: str, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while (found := self._find(name)) is None:
            if not self.running or time.monotonic() > deadline:
                raise ServerProcessError(f"there is no {name}: {self.last_lines()}")
            time.sleep(0.02)
        return found

    def processes(self) -> dict[str, int]:
        """Which processes it has now: front, trainer and teacher, each if it is there."""
        found = {"front": self.pid}
        for child in children(self.pid):
            if (name := _NAMES.get(process_stats.name(child))) is not None:
                found[name] = child
        return found

    def memory(self) -> dict[str, int | None]:
        """Bytes that each of its processes holds in RAM now; None for one that has just ended."""
        return {name: resident_bytes(pid) for name, pid in self.processes().items()}

    def open_descriptors(self) -> int:
        """Files, sockets and pipes that its processes have open now."""
        return sum(map(open_descriptors, self.processes().values()))

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """The end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.strip().splitlines()[-count:]) or "it wrote nothing"


def _flag(name: str, value: object) -> list[str]:
    """A setting as a flag of `sharp serve`."""
    flag = name.replace(".", "-").replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _setting(name: str, value: object) -> list[str]:
    """A setting as `python -m sharp_server` takes it."""
    return ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
