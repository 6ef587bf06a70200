"""The images' locks: every package once, to the version and the hash, and all that the project needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools import lock

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("extras", "locks"),
    [(["cli", "server"], [lock.LOCK]), (["cli", "server", "cluster"], [lock.LOCK, lock.CLUSTER_LOCK])],
    ids=["server", "cluster"],
)
def test_requirements_are_exact_and_satisfy_the_project(extras: list[str], locks: list[Path]) -> None:
    pins = {name: version for path in locks for name, version in lock.pins(path).items()}
    for requirement in map(Requirement, lock.wanted(*extras)):
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is not met by {version}"


def test_the_lock_of_a_cluster_repeats_nothing_of_the_server() -> None:
    assert not set(lock.pins(lock.CLUSTER_LOCK)) & (set(lock.pins(lock.LOCK)) | set(lock.pins(lock.CUDA_LOCK)))


def test_every_requirement_of_users_has_a_bound_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(text for name, texts in extras.items() if name != "dev" for text in texts)]
    for requirement in (Requirement(text) for text in named):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert requirement.name == project["name"] or operators == {">=", "<"}, requirement


@pytest.mark.parametrize("path", [lock.LOCK, lock.CUDA_LOCK, lock.CLUSTER_LOCK], ids=lambda path: path.name)
def test_every_locked_package_has_a_hash_and_is_locked_once(path: Path) -> None:
    packages = re.split(r"\n(?=[a-z])", path.read_text().partition("make lock`.\n")[2].strip())
    assert len(packages) == len(lock.pins(path)) > 10
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", package) for package in packages)
