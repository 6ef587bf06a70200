"""The processes of a run: the server, the empty service and the load generator, each on its core.

The front has a core for itself, which the empty service and the engine get in turn with it; the trainer has another
one. Whatever is left is for the load generator and for us; where nothing is left, that is the trainer's core.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self

from benchmarks.errors import BenchmarkError

_START_SECONDS = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """Who computes where; empty sets where the system does not let us choose."""

    front: frozenset[int] = frozenset()
    trainer: frozenset[int] = frozenset()
    load: frozenset[int] = frozenset()

    def describe(self) -> str:
        """One line for people.

        >>> Cores(frozenset({0}), frozenset({1}), frozenset({1})).describe()
        'front on core 0, trainer on core 1, load generator on the trainer’s core'
        """
        if not self.front:
            return "cores not chosen: the system has no say in it, or has only one"
        shared = "the trainer’s core" if self.load == self.trainer else f"cores {_listed(self.load)}"
        return (
            f"front on core {_listed(self.front)}, trainer on core {_listed(self.trainer)}, load generator on {shared}"
        )


def _listed(cores: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(cores)))


def choose_cores() -> Cores:
    """Share out what this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores()
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return Cores()
    return Cores(frozenset(usable[:1]), frozenset(usable[1:2]), frozenset(usable[2:] or usable[1:2]))


def pin(pid: int, cores: frozenset[int]) -> None:
    """Bind a process with all its threads; those to come inherit it."""
    if cores:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), cores)


@contextlib.contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Compute on these cores for a while, in this thread."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, over all its threads; NaN where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Program:
    """A Python process that we started; ended with the context."""

    def __init__(self, words: Sequence[str], cores: frozenset[int], log: Path) -> None:
        self._log_path = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
            )
        self.pid = self.process.pid
        pin(self.pid, cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def read(self) -> Any:
        """The next line that it says, as JSON."""
        line = _pipe(self.process.stdout).readline()
        if not line:
            self.failed()
        return json.loads(line)

    def ask(self, question: dict[str, Any]) -> Any:
        """Send a line and read the answer."""
        pipe = _pipe(self.process.stdin)
        pipe.write(json.dumps(question).encode() + b"\n")
        pipe.flush()
        return self.read()

    def failed(self) -> None:
        """Say why it ended."""
        last = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise BenchmarkError(f"a process of the benchmark ended: {last[0]}")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHARP_")}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Server(Program):
    """A real server with its trainer."""

    def __init__(
        self, folder: Path, cores: Cores, niceness: int, more: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        self.ports = folder / "ports.json"
        self.ports.unlink(missing_ok=True)  # of a server that was there before
        self._cores = cores
        settings: dict[str, object] = {
            "data.folder": folder / "data",
            "listen.port": 0,
            "http.enabled": "false",
            "listen.port_file": self.ports,
            "trainer.niceness": niceness,
            "log.level": "warning",
            **more,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__(["-m", "sharp_server", *words], cores.front, folder / "server.log")
        deadline = time.monotonic() + _START_SECONDS
        while not self.ports.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.failed()
            time.sleep(0.05)
        ports = json.loads(self.ports.read_text())
        self.address, self.http_port = f"127.0.0.1:{ports['port']}", int(ports["http_port"])

    @property
    def trainer(self) -> int | None:
        """The process that trains, if there is one now."""
        for child in _children(self.pid):
            with contextlib.suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
        return None

    def settle(self) -> None:
        """Bind the front and its children, the trainer among them, each to its core."""
        pin(self.pid, self._cores.front)
        for child in _children(self.pid):
            pin(child, self._cores.trainer)


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


class EmptyService(Program):
    """See `empty.py`."""

    def __init__(self, folder: Path, cores: Cores, *words: str) -> None:
        super().__init__(["-m", "benchmarks.serving.empty", *words], cores.front, folder / "empty.log")
        self.address = f"127.0.0.1:{self.read()['port']}"


class LoadGenerator(Program):
    """See `load.py`."""

    def __init__(self, folder: Path, cores: Cores) -> None:
        super().__init__(["-m", "benchmarks.serving.load"], cores.load, folder / "load.log")
        self.read()
