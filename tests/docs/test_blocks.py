"""Every code block of the README and the docs runs as it stands, page by page, against a real server.

Python blocks of a page share their names, and all blocks of a page share a folder, so a page reads and runs from top to
bottom. `bash` blocks run too. Settings (TOML), YAML and JSON must be valid. `console` blocks show what no test can run
(installation, containers): only the programs are known, and what they name in this repository must be there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sharp_engine import MetricConfig
from sharp_server import resolve_config
from tests.server.running import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *ROOT.glob("SECURITY.md")]
ADDRESS = "localhost:50051"
HTTP = "localhost:9464"
ELSEWHERE = {"operations"}
"""Pages whose blocks need servers of their own: tests/docker/test_operations.py runs them."""
SHOWN_ONLY = {"mermaid", "text", "proto"}
NOT_RUN = {"make", "docker", "kubectl", "git", "pip", "npm", "curl", "promtool", "ray", "sharp", "export"}
"""Programs that `console` blocks may show."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in ELSEWHERE], ids=lambda page: page.stem)
def test_every_code_block_of_the_page_runs(
    page: Path, shared: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # That a block runs as it stands does not depend on how large a metric is; how well it learns is shown elsewhere.
    monkeypatch.setattr(MetricConfig, "random_features_for", lambda *_: 100)
    address = shared.address
    names: dict[str, object] = {"__name__": page.stem}
    for line, language, code in blocks(page):
        code = code.replace(ADDRESS, address).replace(HTTP, f"127.0.0.1:{shared.http_port}")
        if language == "python":
            # Padded, so that a traceback names the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), names)
        elif language == "bash":
            shell(code, address, f"{page.name}:{line}")
        elif language == "console":
            check_shown(code)
        elif language == "toml":
            settings = tmp_path / "settings.toml"
            settings.write_text(code)
            resolve_config({}, {}, settings)
        elif language == "yaml":
            assert list(yaml.safe_load_all(code))
        elif language == "json":
            json.loads(code)
        else:
            assert language in SHOWN_ONLY, f"{page.name}:{line}: no test runs blocks of {language!r}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """(line, language, code) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start()].count("\n") + 1, match[1], match[2]


def shell(code: str, address: str, place: str) -> None:
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": programs, "SHARP_ADDRESS": address, "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{place}\n{done.stdout}\n{done.stderr}"


def check_shown(code: str) -> None:
    """Programs are known, and targets and files of this repository that they name are there."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code.replace("\\\n", " ").splitlines():
        words = line.removeprefix("$ ").split("#")[0].split()
        if not words:
            continue
        assert words[0] in NOT_RUN, f"unknown program: {line}"
        if words[0] == "make":
            assert words[1] in targets, f"no such target: {line}"
        for word in words[1:]:
            if re.match(r"(docker|docs|examples|benchmarks|reliability)/", word):
                assert (ROOT / word).exists(), f"no such file: {line}"
