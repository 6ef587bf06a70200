"""A fake server on a port, and the command with its address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from sharp_cli.main import app
from sharp_client.testing import FakeServer


@dataclass
class Outcome:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Read the one document."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Read a document per line."""
        return [json.loads(line) for line in self.out.splitlines()]


Sharp = Callable[..., Outcome]


@pytest.fixture
def server() -> FakeServer:
    """A server that knows nothing yet."""
    return FakeServer()


@pytest.fixture
def sharp(server: FakeServer) -> Iterator[Sharp]:
    """The command, as if typed: `sharp("learn", "iris", "--json")`."""
    runner = CliRunner()
    with server.serve() as address:

        def run(*words: str, address: str = address, input: str | None = None) -> Outcome:
            done = runner.invoke(app, list(words), env={"SHARP_ADDRESS": address, "COLUMNS": "120"}, input=input)
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            return Outcome(done.exit_code, done.stdout, done.stderr)

        yield run
