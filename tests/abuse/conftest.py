"""One attacked server for all tests of hostile input, and servers that end with their test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "server"))

from reliability.fuzz.attack import Attacker
from reliability.fuzz.fuzz_target import opened
from tests.server.conftest import serve

__all__ = ["attacker", "serve"]


@pytest.fixture(scope="session")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """A server with planted learners, and someone to attack it."""
    with opened(tmp_path_factory.mktemp("attacked")) as target:
        yield Attacker(target)
