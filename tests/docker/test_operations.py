"""docs/operations.md holds: its commands run, against real servers, in the order in which an operator needs them.

What stands before "Restore" runs against one server. Then that server is killed, and the rest runs against a new one
with an empty folder, which has nothing but the files that the recipes have written.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sysconfig
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from typer.testing import CliRunner

from devtools.server_process import ONE_THREAD, clone_environment
from sharp_cli.main import app
from sharp_server.storage.sqlite.schema import FORMAT
from tests.server.running import Server

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


class Operator:
    """Runs commands in one folder, as somebody who follows the document."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(folder / "old").start()

    def bash(self, script: str) -> str:
        paths = [sysconfig.get_path("scripts"), os.environ["PATH"]]
        variables = {"SHARP_ADDRESS": f"localhost:{self.server.port}", "PATH": os.pathsep.join(paths)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=clone_environment({**ONE_THREAD, **variables}),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def evaluated(self) -> dict[str, object]:
        """In this process: it is not the command that is looked at, and starting one for it takes seconds."""
        words, address = ["evaluate", "iris", "--learner", "iris", "--json"], f"localhost:{self.server.port}"
        done = CliRunner().invoke(app, words, env={"SHARP_ADDRESS": address})
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        return {key: answer[key] for key in ("accuracy", "confusion")}


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = Operator(tmp_path_factory.mktemp("operator"))
    yield made
    made.server.stop()


def blocks(kind: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_recipes_run_from_start_to_back_up_and_from_restore_to_roll_back(operator: Operator) -> None:
    before, after = TEXT.split("\n## Restore\n")
    for block in blocks("bash", before):
        operator.bash(block)
    learned = operator.evaluated()
    _check_metrics(operator.server)
    operator.server.kill()

    operator.server = Server(operator.folder / "new").start()
    operator.bash(blocks("bash", after)[0])
    assert operator.evaluated() == learned
    for block in blocks("bash", after)[1:]:
        operator.bash(block)
    assert operator.evaluated() == learned

    # Roll back: what a newer version wrote is refused, and left as it is.
    assert operator.server.stop() == 0
    data = operator.folder / "new" / "data"
    _set_format(data / "journal.db", FORMAT + 1)
    files = {path: path.read_bytes() for path in data.rglob("*.safetensors")}
    operator.server.start(wait=False)
    assert operator.server.process.wait(60) == 1
    said = f"the journal has format {FORMAT + 1}, this server reads {FORMAT}"
    assert said in operator.server.log.read_text() and said in TEXT
    assert files and all(path.read_bytes() == held for path, held in files.items())

    # Upgrade: another process on the same folder.
    _set_format(data / "journal.db", FORMAT)
    operator.server.start()
    assert operator.evaluated() == learned


def test_every_alert_is_a_rule_about_metrics_that_are_documented() -> None:
    (text,) = blocks("yaml")
    (group,) = yaml.safe_load(text)["groups"]
    known = documented() | {f"{name}_bucket" for name in documented()} | {"up"}
    for rule in group["rules"]:
        assert rule["alert"].startswith("Sharp") and rule["annotations"]["summary"] and rule["labels"]["severity"]
        named: list[str] = []

        def visit(node: object, named: list[str] = named) -> None:
            if isinstance(node, promql_parser.VectorSelector):
                named.append(str(node.name))

        promql_parser.walk(promql_parser.parse(rule["expr"]), visit)
        assert named and set(named) <= known, rule


def documented() -> set[str]:
    return set(re.findall(r"^\| `(sharp_\w+)` \|", TEXT, re.MULTILINE))


def _check_metrics(server: Server) -> None:
    """The document has a line for every metric of a server that has learned something, and for nothing else."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as answer:
        exposed = set(re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE))
    assert {name for name in exposed if not name.endswith("_created")} == documented()


def _set_format(journal: Path, number: int) -> None:
    connection = sqlite3.connect(journal)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.commit()
    connection.close()
