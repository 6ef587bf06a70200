"""What every test shares: one thread per process, the same hypothesis examples on every run, servers taken in turn."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, settings

import tests.environment  # noqa: F401
from devtools.server_process import ServerProcess
from tests import warm_servers
from tests.server.running import Server
from tests.server_pool import ServerPool

# One thread each: results do not depend on the machine's cores, and parallel tests do not fight for them.
torch.set_num_threads(1)

ServerProcess.launcher = warm_servers.start

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """What is here now stays: nobody needs to look through a million objects again with every collection of garbage.

    The server asks for such collections, and where it runs in the tests' own process they were half of all its time.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries look for leaks at the end


@pytest.fixture(scope="session")
def server_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    pool = ServerPool(tmp_path_factory.mktemp("pool"))
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def shared(server_pool: ServerPool) -> Server:
    """One server for the tests of a file; each uses learners of its own."""
    return server_pool.lend("a file of tests")


@pytest.fixture
def lend(server_pool: ServerPool) -> Callable[..., Server]:
    """A server without learners, with settings of the test's choice; the test may kill it and start it again."""
    return partial(server_pool.lend, "a test")
