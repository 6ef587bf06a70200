"""Machines for trying a cluster on: network namespaces on one bridge, each with an address and processes of its own.

A machine can be killed (every process in it, at once) and its link can be cut and mended. Needs root and iproute2; says
so where it may not run. Whatever it makes has names of this process, and goes when it is closed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_SECONDS_TO_DIE = 20.0


class NotAllowedError(RuntimeError):
    """Namespaces can't be made here."""


def why_not() -> str:
    """Why machines can't be made here; empty: they can."""
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    probe = f"sharp-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


class Network:
    """A bridge, and machines on it. The bridge's own address is this machine's."""

    def __init__(self) -> None:
        reason = why_not()
        if reason:
            raise NotAllowedError(reason)
        self._id = f"s{os.getpid() % 100_000}"
        self._subnet = f"10.77.{os.getpid() % 250}"
        self._bridge = f"{self._id}br"
        self.address = f"{self._subnet}.1"
        self.machines: list[Machine] = []
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def machine(self, name: str) -> Machine:
        """A new machine on the bridge."""
        number = len(self.machines) + 10
        made = Machine(f"{self._id}{name}", f"{self._id}v{number}", f"{self._subnet}.{number}", self._bridge)
        self.machines.append(made)
        return made

    def close(self) -> None:
        """Kill all machines, and take everything away."""
        for machine in self.machines:
            machine.kill()
            machine.remove()
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Machine:
    """One namespace."""

    def __init__(self, name: str, link: str, address: str, bridge: str) -> None:
        self.name, self.address, self._link = name, address, link
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", bridge)
        _ip("link", "set", link, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process on it."""
        with log.open("ab") as output:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command],
                env=dict(environment),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, command: Sequence[str], environment: Mapping[str, str], log: Path, seconds: float) -> None:
        """Run a command on it to its end."""
        with log.open("ab") as output:
            subprocess.run(
                ["ip", "netns", "exec", self.name, *command],
                env=dict(environment),
                stdout=output,
                stderr=output,
                check=True,
                timeout=seconds,
            )

    def processes(self) -> list[int]:
        """Everything that runs on it."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]

    def kill(self) -> None:
        """The power goes: SIGKILL to everything, until nothing is left."""
        deadline = time.monotonic() + _SECONDS_TO_DIE
        while running := self.processes():
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of {self.name} outlived SIGKILL: {running}")
            time.sleep(0.05)

    def cut(self) -> None:
        """Its cable is pulled."""
        _ip("link", "set", self._link, "down")

    def mend(self) -> None:
        """It is plugged in again."""
        _ip("link", "set", self._link, "up")

    def remove(self) -> None:
        """Take it away."""
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "del", self.name)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._link)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
