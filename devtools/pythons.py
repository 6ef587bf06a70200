"""`make test-python`: the tests that need no tools of their own, with every Python that the project promises to run on.

    python -m devtools.pythons [--pytest "tests/engine -q"]

A Python is looked for on the path (`python3.13`) and among pyenv's. Each has an environment of its own, `.venv-3.13`.
One that is absent is said to be absent: it must never count as tested.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from devtools.server_process import ROOT, clone_environment

VERSIONS = ("3.11", "3.12", "3.13")
TOOLS = ("ruff", "pytest", "pytest-xdist", "hypothesis", "httpx", "cryptography", "pyyaml")
TESTS = "tests/engine tests/client tests/server tests/e2e tests/upgrade"
_RESULTS = {None: "absent: no such interpreter here", 0: "passed"}


def find(version: str) -> Path | None:
    """An interpreter of a version: on the path, or the newest of pyenv's."""
    on_path = shutil.which(f"python{version}")
    if on_path and subprocess.run([on_path, "-c", ""], capture_output=True).returncode == 0:  # pyenv's shims may refuse
        return Path(on_path)
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next(iter(sorted(kept.glob(f"{version}.*/bin/python"), reverse=True)), None)


def run_tests(python: Path, version: str, argv: list[str]) -> int:
    """Make the environment where it is missing, and run the tests in it; returns pytest's exit code."""
    environment = ROOT / f".venv-{version}"
    own = environment / "bin" / "python"
    if not (environment / "ready").exists():
        subprocess.run([python, "-m", "venv", environment], check=True)
        install: list[str | Path] = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"{ROOT}[server,sklearn,parquet]", *TOOLS], check=True)
        (environment / "ready").touch()
    return subprocess.run([own, "-m", "pytest", *argv], cwd=ROOT, env=clone_environment()).returncode


def run_all(versions: Iterable[str], argv: list[str]) -> dict[str, int | None]:
    """Run the tests with each version; gives pytest's exit codes, None where there is no such interpreter."""
    found = {version: find(version) for version in versions}
    return {version: None if python is None else run_tests(python, version, argv) for version, python in found.items()}


def main() -> int:
    """Test with each, and say how it went; returns 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pytest", default=TESTS, help="what pytest is given")
    parser.add_argument("--only", choices=VERSIONS, action="append", help="may be repeated")
    options = parser.parse_args()
    results = run_all(options.only or VERSIONS, options.pytest.split())
    for version, code in results.items():
        sys.stdout.write(f"Python {version}: {_RESULTS.get(code, f'failed with exit code {code}')}\n")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
