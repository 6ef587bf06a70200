"""The README's Python runs as it stands; only the server's address is another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sharp_client.testing import FakeServer

README = Path(__file__).parents[2] / "README.md"
CLIENT, ENGINE = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_client_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer().serve() as address:
        exec(compile(CLIENT.replace("localhost:50051", address), "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == "['calm']"


def test_the_engine_example_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(ENGINE, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("0 ")
    assert (tmp_path / "digits.safetensors").is_file()
