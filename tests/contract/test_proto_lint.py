"""The protos keep to the rules of buf, comments included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_buf(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run buf in the root of the repository."""
    program = shutil.which("buf", path=sysconfig.get_path("scripts")) or shutil.which("buf")
    if program is None:
        pytest.fail("buf is not installed: pip install -e '.[dev]'")
    environment = {**os.environ, "BUF_CACHE_DIR": str(cache)}
    return subprocess.run([program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_buf_lint_finds_nothing(tmp_path: Path) -> None:
    result = run_buf(tmp_path, "lint")
    assert result.returncode == 0, result.stdout + result.stderr


def test_buf_lint_checks_comments_of_every_kind_of_element(tmp_path: Path) -> None:
    result = run_buf(tmp_path, "config", "ls-lint-rules", "--configured-only")
    rules = {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
    kinds = {"SERVICE", "RPC", "MESSAGE", "FIELD", "ONEOF", "ENUM", "ENUM_VALUE"}
    assert {f"COMMENT_{kind}" for kind in kinds} <= rules


def test_protos_are_formatted(tmp_path: Path) -> None:
    result = run_buf(tmp_path, "format", "--diff", "--exit-code")
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_line_of_a_proto_is_longer_than_120_characters() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "proto").glob("sharp/**/*.proto"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 120
    ]
    assert not long
