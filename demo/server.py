"""A `sharp serve` of our own: started on a free port, killed without warning, started again on the same folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

START_SECONDS = 120.0
"""After which a server that does not serve is given up."""
STOP_SECONDS = 60.0
"""The same for one that does not stop."""


class ServerFailed(RuntimeError):  # noqa: N818 (says what is the matter)
    """The server ended, or never began to serve."""


class Server:
    """The process, and the folder that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports, self._log = folder / "ports.json", folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """What one would type, in the words of this Python."""
        flags = {"--data-folder": self.folder / "data", "--port": 0, "--port-file": self._ports}
        words = [str(word) for flag in flags.items() for word in flag]
        return [sys.executable, "-m", "sharp_cli", "serve", "--no-http-enabled", *words]

    def start(self) -> str:
        """Start it and wait until it serves; returns its address."""
        self._ports.unlink(missing_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SHARP_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + START_SECONDS
        while not self._ports.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the server does not serve: {self._last_words()}")
            time.sleep(0.05)
        return f"127.0.0.1:{json.loads(self._ports.read_text())['port']}"

    def kill(self) -> None:
        """SIGKILL: it gets no chance to save anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, as a container's runtime does it; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
