"""The faults, one by one: how each begins and ends, while the server works."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devtools.process_stats import resident_bytes
from devtools.server_process import ServerProcess
from reliability.faults.name_server import NameServer
from reliability.faults.shim import Shim

HOUR = 3600
_FSYNC_SECONDS = 2.0
_SPARE_BYTES = 16 << 20


@dataclass(frozen=True)
class Stage:
    """The server that is put through a fault, and what can be done to it."""

    server: ServerProcess
    shim: Shim
    names: NameServer
    rotate: Callable[[], None]
    """Put another certificate, of the same authority, into the server's files."""


@dataclass(frozen=True)
class Scenario:
    """One fault."""

    about: str
    begin: Callable[[Stage], None]
    end: Callable[[Stage], None]
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the server."""
    tls: bool = False
    shim: bool = True
    """Whether the server's calls to the system go through the shim."""
    by_name: bool = False
    """Whether clients know the server by its name."""


def _nothing(stage: Stage) -> None:
    stage.shim.set()


def _stop_trainer(stage: Stage) -> None:
    os.kill(stage.server.trainer_pid(), signal.SIGSTOP)


def _continue_trainer(stage: Stage) -> None:
    trainer = stage.server.find_trainer()
    if trainer is not None:
        os.kill(trainer, signal.SIGCONT)


def _bound_memory(stage: Stage) -> None:
    """No more address space than the trainer has now, and a little."""
    trainer = stage.server.trainer_pid()
    pages = int(Path(f"/proc/{trainer}/statm").read_text(encoding="ascii").split()[0])
    assert resident_bytes(trainer)
    bound = pages * os.sysconf("SC_PAGE_SIZE") + _SPARE_BYTES
    resource.prlimit(trainer, resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


def _free_memory(stage: Stage) -> None:
    trainer = stage.server.find_trainer()
    if trainer is not None:
        resource.prlimit(trainer, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _move(stage: Stage) -> None:
    """The server ends, and starts again at another address of this machine, under the same name and port."""
    server = stage.server
    port = server.port
    server.stop()
    stage.names.address = "127.0.0.2"
    server.settings |= {"listen.host": stage.names.address, "listen.port": port}
    server.start()


def _back_and_forth(stage: Stage) -> None:
    for ahead in (HOUR, -HOUR, 24 * HOUR, 0, -30):
        stage.shim.set(clock_ahead=ahead)
        time.sleep(0.5)


SCENARIOS: dict[str, Scenario] = {
    "full-disk": Scenario(
        "every write to the data folder fails: no space", lambda s: s.shim.set(disk="full"), _nothing
    ),
    "read-only-disk": Scenario(
        "the data folder's disk turns read-only", lambda s: s.shim.set(disk="read-only"), _nothing
    ),
    "slow-disk": Scenario(
        f"every fsync takes {_FSYNC_SECONDS:g} s", lambda s: s.shim.set(fsync_seconds=_FSYNC_SECONDS), _nothing
    ),
    "clock": Scenario("the clock jumps by hours and a day, back and forth", _back_and_forth, _nothing),
    "stopped-trainer": Scenario("SIGSTOP to the trainer, SIGCONT at the end", _stop_trainer, _continue_trainer),
    "hung-trainer": Scenario(
        "SIGSTOP to the trainer for longer than its watchdog waits",
        _stop_trainer,
        _continue_trainer,
        {"trainer.watchdog_seconds": 3},
    ),
    "memory": Scenario("the trainer gets no more memory than it has", _bound_memory, _free_memory),
    "certificate": Scenario(
        "the server's certificate is replaced by another of the same authority",
        lambda s: s.rotate(),
        lambda s: None,
        tls=True,
        shim=False,
    ),
    "name": Scenario(
        "the server moves to another address, and its name with it; clients know the name alone",
        _move,
        lambda s: None,
        shim=False,
        by_name=True,
    ),
}
