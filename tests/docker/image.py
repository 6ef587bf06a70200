"""Builds the image on a stand-in for its base and starts containers of it, with buildah and podman, as root on Debian.

The stand-in is what debootstrap makes, with this machine's certificates and pip settings, so that no registry is asked
for a base image. Everything lives in one folder, which may be deleted at any time; what is in it is used again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOOLS = ("buildah", "debootstrap", "podman", "runc")
STAND_IN = "localhost/sharp-stand-in:latest"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SECONDS_TO_START = 180.0


class Unfit(RuntimeError):  # noqa: N818 (says what is wrong)
    """This machine can't build images."""


class Machine:
    """Buildah and podman with their storage in one folder."""

    def __init__(self, folder: Path, storage_driver: str) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            needed = " ".join(TOOLS)
            raise Unfit(f"image-check builds images as root on Debian, with {needed} (apt-get install {needed})")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        place = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._buildah = ["buildah", *place, "--storage-driver", storage_driver]
        self._podman = ["podman", *place, "--storage-driver", storage_driver]
        self._podman += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]

    def buildah(self, *words: str) -> str:
        """Run buildah; returns what it said."""
        return subprocess.run([*self._buildah, *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout

    def podman(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run podman."""
        done = subprocess.run([*self._podman, *words], capture_output=True, text=True, timeout=600)
        if check and done.returncode:
            raise AssertionError(f"podman {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def make_stand_in(self) -> None:
        """Make the base image, unless it is there."""
        if self.podman("image", "exists", STAND_IN, check=False).returncode == 0:
            return
        root = self.folder / "stand-in"
        shutil.rmtree(root, ignore_errors=True)
        suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", packages, suite, str(root)], check=True)
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        if Path("/etc/pip.conf").exists():
            shutil.copy("/etc/pip.conf", root / "etc/pip.conf")
        container = self.buildah("from", "scratch").strip()
        self.buildah("copy", "--quiet", container, str(root), "/")
        self.buildah("config", "--env", f"PATH={SYSTEM_PATH}", "--env", f"PIP_CERT={CERTIFICATES}", container)
        self.buildah("commit", "--quiet", "--rm", container, STAND_IN)
        shutil.rmtree(root)

    def build(self, tag: str, source: Path = ROOT, **arguments: str) -> None:
        """Build the Dockerfile of a source tree; only docker's format knows health checks."""
        given = {"PYTHON_IMAGE": STAND_IN, **arguments}
        words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
        how = ["--format", "docker", "--isolation", "chroot", "--layers"]
        subprocess.run(
            [*self._buildah, "bud", *how, *words, "-f", "docker/Dockerfile", "-t", tag, "."], cwd=source, check=True,
            stdout=sys.stderr,
        )  # fmt: skip

    def remove(self, prefix: str) -> None:
        """Remove what an earlier run left: containers and volumes whose names begin so."""
        for kind, column in (("container", "{{.Names}}"), ("volume", "{{.Name}}")):
            every = ["--all"] if kind == "container" else []
            names = self.podman(kind, "ls", *every, "--format", column).stdout.split()
            for name in names:
                if name.startswith(prefix):
                    self.podman(kind, "rm", "--force", name)


class Container:
    """A container of the image, confined as docker/compose.yaml does it, with no network but its own loopback."""

    def __init__(self, machine: Machine, name: str, image: str, volume: str, *mounts: str, **environment: str) -> None:
        self.name, self._machine = name, machine
        settings = [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
        mounted = [word for mount in (f"{volume}:/var/lib/sharp", *mounts) for word in ("--volume", mount)]
        confined = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
        # Limits that any user may set: podman's own are above what some machines allow.
        limits = ["--network", "none", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
        machine.podman("create", "--name", name, *confined, *limits, *settings, *mounted, image)

    def start(self) -> None:
        """Start it and wait until its health check passes."""
        self._machine.podman("start", self.name)
        deadline = time.monotonic() + SECONDS_TO_START
        while self._machine.podman("healthcheck", "run", self.name, check=False).returncode:
            assert self.state("Running") == "true", f"{self.name} ended: {self.logs()}"
            assert time.monotonic() < deadline, f"{self.name} is not healthy: {self.logs()}"
            time.sleep(0.5)

    def run_to_its_end(self) -> tuple[int, str]:
        """Start it and wait for its end; returns the exit code and what it said."""
        self._machine.podman("start", self.name)
        code = int(self._machine.podman("wait", self.name).stdout)
        return code, self.logs()

    def sharp(self, *words: str, token: str = "") -> str:
        """Run a `sharp` command inside; returns what it wrote."""
        given = ["--env", f"SHARP_TOKEN_FILE={token}"] if token else []
        return self._machine.podman("exec", *given, self.name, "sharp", *words).stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run any command inside."""
        return self._machine.podman("exec", self.name, *words, check=False)

    def kill(self) -> None:
        """End it as a crash would."""
        self._machine.podman("kill", "--signal", "KILL", self.name)
        self._machine.podman("wait", self.name)

    def stop(self) -> int:
        """Ask it to stop, as every engine does; returns its exit code."""
        self._machine.podman("stop", "--time", "60", self.name)
        return int(self.state("ExitCode"))

    def state(self, field: str) -> str:
        """One field of its state."""
        return self._machine.podman(
            "container", "inspect", "--format", "{{.State." + field + "}}", self.name
        ).stdout.strip()

    def logs(self) -> str:
        """Everything it said so far."""
        done = self._machine.podman("logs", self.name)
        return done.stdout + done.stderr

    def processes(self) -> list[list[str]]:
        """(user id, command) of every process in it, as the machine sees them."""
        lines = self._machine.podman("top", self.name, "huser", "args").stdout.splitlines()[1:]
        return [line.split(maxsplit=1) for line in lines]


def inspect(machine: Machine, image: str) -> Any:
    """What an image says of itself."""
    return json.loads(machine.podman("image", "inspect", image).stdout)[0]
