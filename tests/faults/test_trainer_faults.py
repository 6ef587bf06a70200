"""Whatever happens to training: the episode is tried again, then parked with its reason; everything else goes on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharp.v1 import episode_pb2, parked_pb2
from tests.server.running import Server, answered, blobs, until

BOUND = 1 << 43
TRIES = 2
QUESTIONS, ANSWERS = blobs("ab")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a learner that knows something, on which nothing that happens to others may tell."""
    server = Server(
        tmp_path_factory.mktemp("faults"),
        trainer__attempts=TRIES,
        trainer__watchdog_seconds=6,
        trainer__memory_bytes=BOUND,
    ).start()
    server.create("good")
    server.teach("good", (QUESTIONS, ANSWERS))
    yield server
    server.stop()


def parked_and_gone_on(
    server: Server, learner: str, bad: tuple[Any, list[Any]], after: tuple[Any, list[Any]]
) -> episode_pb2.EpisodeParked:
    """Teach an episode that can't be learned and one that can; returns what the first was parked with."""
    with server.stream(learner) as stream:
        for x, y in (bad, after):
            stream.send(x, y)
            stream.end()
        stream.close()
        events = list(stream.events())
    tries = [event.started.attempt for event in events if event.HasField("started") and event.episode == 1]
    assert tries == list(range(1, TRIES + 1))
    parked: episode_pb2.EpisodeParked = next(event.parked for event in events if event.HasField("parked"))
    assert parked.attempts == TRIES
    assert [event.episode for event in events if event.HasField("learned")] == [2]
    assert answered(server.predict("good", QUESTIONS[:5])) == ANSWERS[:5]
    kept = server.admin.ListParkedEpisodes(parked_pb2.ListParkedEpisodesRequest(learner=learner)).episodes
    assert [episode.episode for episode in kept] == [1] and kept[0].parked.detail == parked.detail
    return parked


def test_a_loss_that_becomes_infinite_parks_the_episode(server: Server) -> None:
    server.create("infinite", training__learning_rate="1e38", metric__enabled="false")
    with server.stream("infinite") as stream:
        stream.send(*blobs("ab"))
        stream.end()
        parked = stream.wait_event("parked").parked
    assert (parked.reason, parked.attempts) == (episode_pb2.PARK_REASON_NON_FINITE_LOSS, TRIES)
    assert "the loss became nan" in parked.detail
    server.create("finite")
    server.teach("finite", blobs("ab"))
    assert answered(server.predict("good", QUESTIONS[:5])) == ANSWERS[:5]


def test_an_error_of_the_engine_parks_the_episode(server: Server) -> None:
    server.create("silent", metric__enabled="false")
    x, y = blobs("ab", seed=1)
    parked = parked_and_gone_on(server, "silent", (x * 0, y), blobs("cd"))
    assert parked.reason == episode_pb2.PARK_REASON_SILENT_NETWORK


def test_an_exception_nobody_thought_of_parks_the_episode_and_it_can_be_learned_later(server: Server) -> None:
    server.create("odd")
    work = server.folder / "data" / "work"
    work.rmdir()
    work.write_bytes(b"a file where a folder should be")
    try:
        with server.stream("odd") as stream:
            stream.send(*blobs("ab"))
            stream.end()
            parked = stream.wait_event("parked").parked
    finally:
        work.unlink()
        work.mkdir()
    assert (parked.reason, parked.attempts) == (episode_pb2.PARK_REASON_ENGINE_ERROR, TRIES)
    assert "FileExistsError" in parked.detail and str(server.folder) not in parked.detail
    server.admin.RetryParkedEpisode(parked_pb2.RetryParkedEpisodeRequest(learner="odd", episode=1))
    until(lambda: server.learner("odd").status.model_version == 1, 60)


def test_running_out_of_memory_parks_the_episode(server: Server) -> None:
    server.create("wide")
    trainer = server.trainer_pid()
    assert resource.prlimit(trainer, resource.RLIMIT_AS)[0] == BOUND
    taken = int(Path(f"/proc/{trainer}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(trainer, resource.RLIMIT_AS, (taken + (30 << 20), BOUND))
    rng = np.random.default_rng(0)
    try:
        with server.stream("wide") as stream:
            for _ in range(8):
                stream.send(rng.random((500, 4000)).astype(np.float32), ["a", "b"] * 250)
            stream.end()
            parked = stream.wait_event("parked").parked
        assert server.teach("good", blobs("cd")) == 2
    finally:
        resource.prlimit(trainer, resource.RLIMIT_AS, (BOUND, BOUND))
    assert (parked.reason, parked.attempts) == (episode_pb2.PARK_REASON_OUT_OF_MEMORY, TRIES)
    assert server.trainer_pid() == trainer
    server.admin.DiscardParkedEpisode(parked_pb2.DiscardParkedEpisodeRequest(learner="wide", episode=1))


def test_a_trainer_that_dies_and_then_hangs_parks_the_episode(server: Server) -> None:
    server.create("slow", training__phases="1", training__min_steps="100000")
    version = server.learner("good").status.model_version
    with server.stream("slow") as stream:
        stream.send(*blobs("ab", each=100))
        stream.end()
        stream.wait_event("progress")
        os.kill(server.trainer_pid(), signal.SIGKILL)
        stream.wait_event("started")
        stream.wait_event("progress")
        os.kill(server.trainer_pid(), signal.SIGSTOP)
        assert answered(server.predict("good", QUESTIONS[:5])) == ANSWERS[:5]
        parked = stream.wait_event("parked").parked
    assert (parked.reason, parked.attempts) == (episode_pb2.PARK_REASON_TRAINER_DIED, TRIES)
    assert "no progress for 6 s" in parked.detail
    assert server.teach("good", blobs("ef"), stream_id="after") == version + 1
    assert server.status().trainer.restarts == 2
