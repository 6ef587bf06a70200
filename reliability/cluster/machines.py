"""Machines for trying a cluster on: network namespaces on one bridge, each with an address and processes of its own.

A machine can be killed (every process in it, at once) and its link can be cut and restored. Needs root and iproute2;
says so where it may not run. Whatever it makes is named after this process, and goes when it is closed; what a process
left that was killed goes when the next network is made.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_SECONDS_TO_DIE = 20.0
_SECONDS_OF_IP = 20.0
_NAME = re.compile(r"sharp(\d+)[a-z]+")


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
        _clear_leftovers()
        self._subnet = f"10.77.{os.getpid() % 250}"
        self._bridge = _bridge(os.getpid())
        self.address = f"{self._subnet}.1"
        self.machines: list[Machine] = []
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
        except BaseException:
            self.close()
            raise

    def machine(self, name: str) -> Machine:
        """A new machine on the bridge."""
        number = len(self.machines) + 10
        link = f"s{os.getpid()}v{number}"
        made = Machine(f"sharp{os.getpid()}{name}", link, f"{self._subnet}.{number}", self._bridge)
        self.machines.append(made)
        made.plug_in()
        return made

    def close(self) -> None:
        """Kill all machines, and take everything away: what can't be taken keeps nothing else."""
        with contextlib.ExitStack() as stack:
            stack.callback(_delete_link, self._bridge)
            for machine in self.machines:
                stack.callback(machine.remove)
                stack.callback(machine.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Machine:
    """One namespace."""

    def __init__(self, name: str, link: str, address: str, bridge: str) -> None:
        self.name, self.address, self._link, self._bridge = name, address, link, bridge

    def plug_in(self) -> None:
        """Make it, with a cable to the bridge."""
        name, link, address, bridge = self.name, self._link, self.address, self._bridge
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
        return _processes(self.name)

    def kill(self) -> None:
        """The power goes: SIGKILL to everything, until nothing is left."""
        _kill_all(self.name)

    def cut(self) -> None:
        """Its cable is pulled."""
        _ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        """It is plugged in again."""
        _ip("link", "set", self._link, "up")

    def remove(self) -> None:
        """Take it away."""
        _delete_namespace(self.name)
        _delete_link(self._link)


def _clear_leftovers() -> None:
    """Take away the machines of processes that are gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True, timeout=_SECONDS_OF_IP)
    for line in listed.stdout.splitlines():
        found = _NAME.fullmatch(line.split()[0])
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            _kill_all(found[0])
            _delete_namespace(found[0])
            _delete_link(_bridge(int(found[1])))


def _bridge(pid: int) -> str:
    return f"s{pid}br"


def _processes(namespace: str) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False, timeout=_SECONDS_OF_IP
    )
    return [int(word) for word in found.stdout.split()]


def _kill_all(namespace: str) -> None:
    deadline = time.monotonic() + _SECONDS_TO_DIE
    while running := _processes(namespace):
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of {namespace} outlived SIGKILL: {running}")
        time.sleep(0.05)


def _delete_namespace(name: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "del", name)


def _delete_link(name: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("link", "del", name)


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True, timeout=_SECONDS_OF_IP)
