"""The processes of a run: the server, the empty service and the load generator, each on its core.

The front has a core for itself, which the empty service and the engine get in turn with it; trainer and teacher have
another one. Whatever is left is for the load generator and for us; where nothing is left, that is the trainer's core.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self

from benchmarks.errors import BenchmarkError
from devtools.process_stats import children
from devtools.server_process import ONE_THREAD, START_SECONDS, ServerProcess, clone_environment

_NOTHING: Mapping[str, object] = MappingProxyType({})


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


class Program:
    """A Python process that we started; ended with the context."""

    def __init__(self, argv: Sequence[str], cores: frozenset[int], log: Path) -> None:
        self._log_path = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=clone_environment(ONE_THREAD),
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


class MeasuredServer(ServerProcess):
    """A real server, with its front on one core, its trainer and its teacher on the other."""

    def __init__(self, folder: Path, cores: Cores, niceness: int, more: Mapping[str, object] = _NOTHING) -> None:
        settings = {"trainer.niceness": niceness, "log.level": "warning", **more}
        super().__init__(folder, settings, environment=ONE_THREAD)
        self._cores = cores

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it serves, on the front's core from the beginning."""
        pin(self.pid, self._cores.front)
        super().wait_until_ready(seconds)

    def settle(self) -> None:
        """Bind the front and its children, the trainer and the teacher among them, each to its core."""
        pin(self.pid, self._cores.front)
        for child in children(self.pid):
            pin(child, self._cores.trainer)


class EmptyService(Program):
    """See `empty_service.py`."""

    def __init__(self, folder: Path, cores: Cores, *flags: str) -> None:
        super().__init__(["-m", "benchmarks.serving.empty_service", *flags], cores.front, folder / "empty.log")
        self.address = f"127.0.0.1:{self.read()['port']}"


class EmptyTeaching(Program):
    """See `empty_teaching.py`; it ends with its input."""

    def __init__(self, folder: Path, cores: Cores) -> None:
        argv = ["-m", "benchmarks.serving.empty_teaching", str(folder / "data")]
        super().__init__(argv, cores.front, folder / "teaching.log")
        self.address = f"127.0.0.1:{self.read()['port']}"

    def __exit__(self, *_: object) -> None:
        _pipe(self.process.stdin).close()
        self.process.wait(30.0)
        super().__exit__()


class LoadGenerator(Program):
    """See `load_generator.py`."""

    def __init__(self, folder: Path, cores: Cores) -> None:
        super().__init__(["-m", "benchmarks.serving.load_generator"], cores.load, folder / "load.log")
        self.read()
