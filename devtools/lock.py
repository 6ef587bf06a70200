"""Writes the locks in `docker/`: everything in the images, to the version and the hash.

    python -m devtools.lock [--upgrade]

pip resolves what `sharp-serve[server]` needs, as it is configured here, and says which files it would install; nothing
is installed. Versions stay as they are locked, unless they no longer fit or are to be upgraded. Every Python and
machine that the image is made for has its files' hashes. What torch's own wheels need of CUDA is apart (`cuda.lock`):
wheels of torch from another index do without. So is what the image of a cluster has on top (`cluster.lock`). It must
never lock a file that pip did not name.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK, CUDA_LOCK = ROOT / "docker" / "requirements.lock", ROOT / "docker" / "cuda.lock"
CLUSTER_LOCK = ROOT / "docker" / "cluster.lock"
PYTHONS = ("3.12", "3.11", "3.13")
"""The image's first: versions are resolved for it."""
MACHINES = ("x86_64", "aarch64")
_GLIBC = [f"2_{minor}" for minor in range(36, 4, -1)]
"""Debian bookworm's, and all that came before it."""
_OLDER = ("manylinux2014", "manylinux2010", "manylinux1")
_CUDA = re.compile(r"^(nvidia-|cuda-|triton$)")
_PIN = re.compile(r"^([a-z0-9.-]+)==([^ ;\\]+)", re.MULTILINE)


Packages = dict[str, tuple[str, set[str]]]
"""Version and hashes, by name."""


def wanted(*extras: str) -> list[str]:
    """What the project and its extras need, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"]]
    for extra in extras:
        named += project["optional-dependencies"][extra]
    return [requirement for requirement in named if not requirement.startswith(project["name"])]


def pins(path: Path) -> dict[str, str]:
    """Versions by package, as they are locked; nothing where there is no lock."""
    return dict(_PIN.findall(path.read_text(encoding="utf-8"))) if path.exists() else {}


def canonical(name: str) -> str:
    """A package's name as indexes write it.

    >>> canonical("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def report(requirements: Iterable[str], python: str, machine: str, *argv: str) -> list[dict[str, Any]]:
    """What pip would install for a Python and a machine."""
    platforms = [f"manylinux_{version}_{machine}" for version in _GLIBC] + [f"{name}_{machine}" for name in _OLDER]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--disable-pip-version-check", "--report", str(file), "--target", folder]
        command += ["--only-binary", ":all:", "--python-version", python]
        command += [word for platform in platforms for word in ("--platform", platform)]
        subprocess.run([*command, *argv, *requirements], check=True)
        found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["install"]
        return found


def locked(requirements: Iterable[str], before: Mapping[str, str]) -> Packages:
    """Version and hashes of every package that is needed; those locked before stay at their versions."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in before.items()), encoding="utf-8")
        resolved = report(requirements, PYTHONS[0], MACHINES[0], "--constraint", str(constraints))
    lock = {canonical(item["metadata"]["name"]): (item["metadata"]["version"], {_hash(item)}) for item in resolved}
    exact = [f"{name}=={version}" for name, (version, _) in lock.items()]
    for python in PYTHONS:
        for machine in MACHINES:
            for item in report(exact, python, machine, "--no-deps"):
                lock[canonical(item["metadata"]["name"])][1].add(_hash(item))
    return lock


def _hash(item: Mapping[str, Any]) -> str:
    digest: str = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return digest


def text(packages: Packages, about: str) -> str:
    """A lock as pip reads it with --require-hashes."""
    lines = [f"# {about}", "# Written by `make lock`."]
    for name, (version, hashes) in sorted(packages.items()):
        lines.append(
            " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    upgrade = parser.parse_args().upgrade
    server = locked(wanted("cli", "server"), {} if upgrade else pins(LOCK) | pins(CUDA_LOCK))
    fixed = {name: version for name, (version, _) in server.items()}
    cluster = locked(wanted("cli", "server", "cluster"), fixed if upgrade else pins(CLUSTER_LOCK) | fixed)
    cuda = {name: package for name, package in server.items() if _CUDA.match(name)}
    rest = {name: package for name, package in server.items() if name not in cuda}
    more = {name: package for name, package in cluster.items() if name not in server}
    made_for = f"Python {', '.join(sorted(PYTHONS))} on {' and '.join(MACHINES)}"
    for path, packages, about in (
        (LOCK, rest, "Everything in the image but CUDA's libraries"),
        (CUDA_LOCK, cuda, f"What the torch of {LOCK.name} needs of CUDA"),
        (CLUSTER_LOCK, more, f"What the image of a cluster has on top of {LOCK.name}"),
    ):
        path.write_text(text(packages, f"{about}, for {made_for}."), encoding="utf-8")


if __name__ == "__main__":
    main()
