"""What a figure was measured on and with: versions and machine, as plain JSON values."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

import sharp_engine

_RESULTS = (":(exclude,top)benchmarks/results", ":(exclude,top)docs/proof.md")


def versions() -> dict[str, str | None]:
    """Versions of the engine, of torch and of python, and the clone's commit where there is one."""
    try:
        engine = importlib.metadata.version("sharp-serve")
    except importlib.metadata.PackageNotFoundError:
        engine = "not installed"
    return {"engine": engine, "commit": _commit(), "torch": torch.__version__, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """The processor, its cores, and how many threads torch uses of them."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def describe(facts: dict[str, Any]) -> str:
    """One line for people.

    >>> describe({"cpu": "AMD EPYC", "cores": 2, "threads": 2, "system": "Linux x86_64"})
    'AMD EPYC, 2 cores, torch on 2 of them, Linux x86_64'
    """
    return f"{facts['cpu']}, {facts['cores']} cores, torch on {facts['threads']} of them, {facts['system']}"


@cache
def engine_digest() -> str:
    """Of all source files of the engine: what another one measured is to be measured anew."""
    digest = hashlib.sha256()
    for path in sorted(Path(sharp_engine.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _commit() -> str | None:
    """The commit of the clone this file lies in, marked where files were changed that are not results themselves."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *_RESULTS)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
