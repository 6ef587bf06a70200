"""Helpers on a real server: the same bits as the trainer alone, and none that outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.numpy

from devtools.process_stats import children, command_line
from sharp_engine import Learner
from sharp_server.config.model import LogConfig, TrainerConfig
from sharp_server.training.helpers import Helpers
from tests.engine.fixtures import change, mlp
from tests.server.running import SECONDS, Server, Stream, blobs, until

SHARDED: dict[str, Any] = {"training__phases": "3", "training__min_steps": "150", "training__shards": "4"}
EPISODES = blobs("abc", each=60), blobs("cde", each=60)


def helpers_of(trainer: int) -> list[int]:
    return [child for child in children(trainer) if any("spawn_main" in word for word in command_line(child))]


def running(pid: int) -> bool:
    return bool(command_line(pid)[:-1])  # one that has ended and waits to be asked has no words


def begin(server: Server, episode: int = 0) -> Stream:
    """A learner of shards whose episode is being learned."""
    stream = server.stream("sharded")
    stream.send(*EPISODES[episode])
    stream.end()
    stream.wait_event("progress")
    return stream


def tensors(server: Server) -> dict[str, bytes]:
    """Of the newest version, each as its bytes."""
    return {name: array.tobytes() for name, array in safetensors.numpy.load(server.exported("sharded")[1]).items()}


@pytest.fixture(scope="module")
def alone(shared: Server) -> list[dict[str, bytes]]:
    """What a trainer makes of the episodes without helpers and undisturbed: the version after each."""
    shared.create("sharded", **SHARDED)
    versions = []
    for number, episode in enumerate(EPISODES):
        shared.teach("sharded", episode, stream_id=str(number))
        versions.append(tensors(shared))
    assert helpers_of(shared.trainer_pid()) == []
    return versions


def test_a_trainer_with_helpers_makes_the_same_versions_as_one_alone(serve: Callable[..., Server], alone: Any) -> None:
    server = serve(trainer__processes=2)
    server.create("plain")
    server.teach("plain", blobs("ab"))
    trainer = server.trainer_pid()
    assert helpers_of(trainer) == [], "nobody needs them yet"
    server.create("sharded", **SHARDED)
    server.teach("sharded", *EPISODES)
    assert server.trainer_pid() == trainer and len(helpers_of(trainer)) == 1
    helper = helpers_of(trainer)[0]
    assert tensors(server) == alone[1]
    assert server.stop() == 0
    assert not running(trainer) and not running(helper)


def test_a_small_episode_passes_one_that_helpers_share(lend: Callable[..., Server], alone: Any) -> None:
    server = lend(trainer__processes=2)
    server.create("sharded", **SHARDED)
    with begin(server) as stream:
        server.create("small")
        assert server.teach("small", blobs("ab")) == 1
        stream.wait_event("learned")
    assert tensors(server) == alone[0]


def test_a_killed_helper_fails_the_try_as_a_killed_trainer_does(serve: Callable[..., Server], alone: Any) -> None:
    server = serve(trainer__processes=2)
    server.create("sharded", **SHARDED)
    with begin(server) as stream:
        trainer = server.trainer_pid()
        os.kill(helpers_of(trainer)[0], signal.SIGKILL)
        stream.wait_event("learned")
    assert server.trainer_pid() != trainer and server.status().trainer.restarts == 1
    assert tensors(server) == alone[0]


def test_an_episode_whose_helpers_die_again_and_again_is_parked(serve: Callable[..., Server]) -> None:
    server = serve(trainer__processes=2, trainer__attempts=1)
    server.create("sharded", **SHARDED)
    with begin(server):
        os.kill(helpers_of(server.trainer_pid())[0], signal.SIGKILL)
        until(lambda: server.learner("sharded").status.backlog.episodes_parked, SECONDS)
    assert "is parked: TRAINER_DIED" in server.log.read_text()


@pytest.mark.parametrize("end", ["trainer killed", "server killed", "server stopped"])
def test_no_helper_outlives_the_trainer(lend: Callable[..., Server], alone: Any, end: str) -> None:
    server = lend(trainer__processes=2)
    server.create("sharded", **SHARDED)
    with begin(server):
        trainer = server.trainer_pid()
        (helper,) = helpers_of(trainer)
        if end == "trainer killed":
            os.kill(trainer, signal.SIGKILL)
        elif end == "server killed":
            server.kill()
        else:
            assert server.stop() == 0
            assert not running(trainer) and not running(helper), "it waits for them"
    until(lambda: not running(trainer) and not running(helper), 20)
    if end == "server stopped":
        server.restart()
        until(lambda: server.learner("sharded").status.model_version == 1, SECONDS)
        assert tensors(server) == alone[0], "it went on with other helpers"


@pytest.mark.parametrize(
    ("shards", "most", "processes"), [(1, 4, 1), (2, 4, 2), (4, 3, 2), (4, 4, 4), (6, 4, 3), (5, 4, 1), (4, 1, 1)]
)
def test_as_many_processes_share_the_shards_as_divide_them(shards: int, most: int, processes: int) -> None:
    helpers = Helpers(None, TrainerConfig(processes=most), LogConfig())  # type: ignore[arg-type]
    assert helpers.processes_for(Learner(change(mlp(), shards=shards))) == processes
