"""Clusters that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.cluster.fronts import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Make clusters; their servers and coordinators are ended with the test."""
    made: list[Cluster] = []

    def make(**settings: object) -> Cluster:
        made.append(Cluster(tmp_path / f"cluster{len(made)}", **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
