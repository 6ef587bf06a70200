"""The client for threads is generated from the one for asyncio, and nothing is written twice by hand."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client"
PACKAGE = CLIENT / "sharp_client"
BY_HAND = [("_learn_stream", "_async_learn_stream"), ("_runtime", "_async_runtime")]
LONGEST_REPETITION = 5


def code_lines(module: str) -> list[str]:
    """The lines of a module after its imports, without blank ones."""
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    body = text[text.index("\nclass ") :] if "\nclass " in text else text
    return [line.strip() for line in body.splitlines() if line.strip()]


def test_the_committed_client_is_exactly_what_the_generator_writes() -> None:
    command = [sys.executable, str(CLIENT / "generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("plain", "other"), BY_HAND)
def test_modules_written_by_hand_repeat_no_six_lines_of_each_other(plain: str, other: str) -> None:
    mine, theirs = code_lines(plain), code_lines(other)
    length = LONGEST_REPETITION + 1
    known = {tuple(theirs[i : i + length]) for i in range(len(theirs) - length + 1)}
    repeated = [tuple(mine[i : i + length]) for i in range(len(mine) - length + 1)]
    found = list(itertools.islice((lines for lines in repeated if lines in known), 1))
    assert not found, "\n".join(found[0])
