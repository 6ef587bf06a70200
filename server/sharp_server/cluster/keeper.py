"""Keeps one server running on a machine: starts it, starts it again when it ends, finds the one that runs already.

The server is a process of its own, as it is without a cluster (ports, TLS, tokens, health, trainer), and outlives its
keeper: a Ray that goes down takes no server with it, and a keeper that comes back takes up the one it finds. A plain
object with a thread; Ray only places it and keeps it alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from sharp_server.config.model import ServerConfig

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a server that ended is started again; they grow while it does not live long."""
_LONG_ENOUGH = 60.0
_DETACHED = '"$@" >>"$SHARP_KEEPER_LOG" 2>&1 </dev/null & echo $!'
"""Start a process that is nobody's child: whatever ends its keeper with all children leaves it alone."""


class Keeper:
    """Safe to use from several threads."""

    def __init__(self, node: str, settings: Mapping[str, str], folder: Path) -> None:
        """`settings`: the server's, by dotted name. `folder`: where its data and its log are."""
        self.node, self._folder = node, folder
        self._ports = folder / "ports.json"
        self._settings = {
            **settings,
            "cluster.node": node,
            "data.folder": str(folder / "data"),
            "listen.port_file": str(self._ports),
        }
        self._stop = threading.Event()
        self._pid = 0
        self._starts = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to keep a server."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def state(self) -> dict[str, object]:
        """What is known of the server, for people."""
        return {"node": self.node, "pid": self._pid, "starts": self._starts, "running": is_server(self._pid)}

    def stop(self, seconds: float = 60.0) -> None:
        """SIGTERM to the server, and wait until it has ended."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        deadline = time.monotonic() + seconds
        if is_server(self._pid):  # and nothing that has its number by now
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
        while is_server(self._pid) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._pid = self._running() or self._launch()
            except (OSError, subprocess.CalledProcessError, ValueError) as error:
                log.warning("the server of %s could not be started, and is tried again: %s", self.node, error)
            while is_server(self._pid):
                if self._stop.wait(_SECONDS_BETWEEN_LOOKS):
                    return
            lived = time.monotonic() - begun
            log.warning("the server of %s ended after %.0f s and is started again", self.node, lived)
            pause = _FIRST_PAUSE if lived > _LONG_ENOUGH else min(2 * pause, _LONGEST_PAUSE)
            self._stop.wait(pause)

    def _running(self) -> int:
        """The server that a keeper before this one started, if it still runs."""
        try:
            pid = int(json.loads(self._ports.read_text())["pid"])
        except (FileNotFoundError, ValueError, KeyError):
            return 0
        return pid if is_server(pid) else 0

    def _launch(self) -> int:
        self._ports.unlink(missing_ok=True)
        self._starts += 1
        # By the environment, not by flags: everybody on a machine can read those, and a DSN may hold a password.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SHARP_", "RAY_"))}
        environment |= {f"SHARP_{name.replace('.', '_').upper()}": value for name, value in self._settings.items()}
        environment["SHARP_KEEPER_LOG"] = str(self._folder / "server.log")
        started = subprocess.run(
            ["setsid", "sh", "-c", _DETACHED, "sh", sys.executable, "-m", "sharp_server"],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        pid = int(started.stdout)
        log.info("the server of %s is process %d", self.node, pid)
        return pid


def is_server(pid: int) -> bool:
    """Whether a process is a server that runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z" and b"sharp_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def changed_settings(config: ServerConfig) -> dict[str, str]:
    """The settings that are not the defaults, by dotted name, as texts."""
    given, defaults = dataclasses.asdict(config), dataclasses.asdict(ServerConfig())
    return {
        f"{section}.{name}": str(value)
        for section, values in given.items()
        for name, value in values.items()
        if value != defaults[section][name]
    }
