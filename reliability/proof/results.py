"""Results on disk, and whether one still counts: for as long as the code that it exercised is the same."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reporting.files import write_json
from devtools.server_process import ROOT
from reliability.proof.figures import Result
from reliability.proof.parts import Part, Run

_KEY = "proof"
"""Of a result: the command that it comes from, and the digest of the code."""


@dataclass(frozen=True)
class Found:
    """What is known of a part."""

    results: tuple[Result, ...]
    """Of the code as it is, if there is one; else those of older code."""
    current: bool
    """Whether they are of the code as it is."""


def digest(code: Iterable[str], root: Path = ROOT) -> str:
    """Of all files that are named or lie in folders that are named."""
    found = hashlib.sha256()
    for name in code:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def keep(written: Path, kept: Path, run: Run, code: str) -> None:
    """Move what a run has written to its place, with what it was run for."""
    result = json.loads(written.read_text(encoding="utf-8"))
    write_json(kept, {**result, _KEY: {"argv": list(run.argv), "code": code}})
    written.unlink()


def is_done(run: Run, part: Part, folder: Path) -> bool:
    """Whether that very run was made with the code as it is, well or badly."""
    result = _read(folder / f"{run.name}.json")
    if result is None or not part.lasts or _KEY not in result:
        return False
    return bool(result[_KEY] == {"argv": list(run.argv), "code": digest(part.code)})


def find(part: Part, folder: Path, quick: bool) -> Found:
    """The results of all runs of a part."""
    read = [_read(folder / f"{run.name}.json") for run in part.runs(quick)]
    present = [result for result in read if result is not None]
    current = [result for result in present if not part.lasts or _is_current(result, part.code)]
    return Found(tuple(current or present), bool(current))


def is_shown(part: Part, found: Found, quick: bool) -> bool:
    """Whether the results are of the code as it is, and reach every goal."""
    if not found.current:
        return False
    try:
        return all(figure.held for figure in part.figures(found.results, part.wanted(quick)))
    except (KeyError, TypeError):
        return False


def _is_current(result: Result, code: tuple[str, ...]) -> bool:
    """By the digest, or for a command that was run by itself by its commit."""
    if _KEY in result:
        return bool(result[_KEY]["code"] == digest(code))
    commit = result["versions"]["commit"]
    if commit is None or commit.endswith("-dirty"):
        return False
    same = subprocess.run(["git", "diff", "--quiet", commit, "--", *code], cwd=ROOT, capture_output=True, check=False)
    return same.returncode == 0


def _read(file: Path) -> Result | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
