"""The server that is killed, as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.serving.processes import Program

_EVERY_SNAPSHOT = 1_000_000


class CrashServer(Program):
    """A server on a data folder that outlives it. Every version's snapshot is kept, to be asked afterwards."""

    def __init__(self, folder: Path) -> None:
        self._ports = folder / "ports.json"
        self._ports.unlink(missing_ok=True)
        settings = {
            "data.folder": folder / "data",
            "data.automatic_snapshots": _EVERY_SNAPSHOT,
            "listen.port": 0,
            "http.enabled": "false",
            "listen.port_file": self._ports,
            "trainer.retry_seconds": 0.1,
            "trainer.attempts": 1000,
            "trainer.niceness": 0,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__(["-m", "sharp_server", *words], frozenset(), folder / "server.log")

    def port(self, seconds: float) -> int:
        """The port, once it serves."""
        deadline = time.monotonic() + seconds
        while not self._ports.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.failed()
            time.sleep(0.02)
        return int(json.loads(self._ports.read_text())["port"])

    def kill(self) -> None:
        """SIGKILL; its trainer ends with it."""
        self.process.kill()
        self.process.wait()

    def kill_trainer(self, seconds: float) -> None:
        """SIGKILL to the training process, as soon as there is one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for child in self._children():
                with contextlib.suppress(OSError):
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGKILL)
                        return
            time.sleep(0.02)
        raise BenchmarkError("there is no trainer to kill")

    def _children(self) -> list[int]:
        return [int(word) for word in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
