"""Without a cluster nothing of it is there: no module, no setting that matters, no server that can't start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devtools.server_process import clone_environment
from sharp_server.cluster.keeper import changed_settings
from sharp_server.config import resolve_config
from sharp_server.config.model import ClusterConfig, ConfigurationError


def test_a_server_by_itself_imports_nothing_of_the_cluster() -> None:
    program = "import sys, sharp_server.server; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=clone_environment(), capture_output=True, text=True, check=True
    )
    heavy = {"psycopg", "psycopg_pool", "ray", "httpx", "obstore"}
    loaded = done.stdout.split()
    assert "sharp_server.context" in loaded
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert not [name for name in loaded if name.startswith("sharp_server.cluster")]


def test_a_server_of_a_cluster_needs_a_store_and_objects_that_others_share() -> None:
    with pytest.raises(ConfigurationError, match="data.store"):
        resolve_config({"cluster.node": "one"}, {})
    resolve_config({"cluster.node": "one", "data.store": "postgresql://x/y", "data.objects": "/o"}, {})


@pytest.mark.parametrize("text", ["x", "=1", "x=-1", "x=1,y"])
def test_replicas_of_single_learners_are_checked(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cluster.replicas_of"):
        ClusterConfig(replicas_of=text)


def test_replicas_are_those_of_the_learner_or_of_all() -> None:
    config = ClusterConfig(replicas=1, replicas_of="x=3, y=0")
    assert [config.replicas_for(name) for name in ("x", "y", "z")] == [3, 0, 1]


def test_settings_that_a_keeper_passes_on_make_the_same_config() -> None:
    given = {
        "listen.port": "0",
        "http.enabled": "false",
        "trainer.retry_seconds": "0.5",
        "data.store": "postgresql://x/y",
    }
    config = resolve_config(given, {}).config
    assert resolve_config(changed_settings(config), {}).config == config
