"""A learner goes on at another server when its own dies, is cut off or has too many: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from safetensors import safe_open

from sharp.v1 import learning_pb2
from tests.server.cluster.fronts import Cluster
from tests.server.running import Server, Stream, answered, blobs, labels, refused, tensor, until

Make = Callable[..., Cluster]
EPISODES = [blobs(["a", "b", "c"], seed=1), blobs(["a", "b", "d"], seed=2)]


def test_a_killed_owner_is_replaced_and_the_learner_is_the_same_bit_for_bit(cluster: Make, tmp_path: Path) -> None:
    made = cluster()
    made.coordinate()
    one, two = made.start("one", "two")
    one.create("digits", training__phases="6", training__min_steps="400")
    first, other = _owner_and_other(made, "digits")
    with other.stream("digits") as stream:  # through the server that does not own it
        stream.send(*EPISODES[0])
        stream.end()
        stream.wait_ack()
        other.lesson("digits", EPISODES[0][0][:1], ["z"], "lesson")
        until(lambda: made.rows("SELECT 1 FROM episodes WHERE phase_sha256 IS NOT NULL"), 60, "a committed phase")
        killed = time.monotonic()
        first.kill()
    stream = until(lambda: _opened(other, "digits"), 60, "a Learn call at the new owner")
    with stream:
        assert time.monotonic() - killed < 30
        assert stream.opened.last_durable_sequence == 2
        assert other.lesson("digits", EPISODES[0][0][:1], ["z"], "lesson").repetition
        stream.send(*EPISODES[1])
        stream.end()
        stream.wait_event("learned")
        stream.wait_event("learned")
    assert "was fetched from the object store" in other.log.read_text()
    calm = Server(tmp_path / "calm", teaching__version_seconds=3600).start()
    try:
        calm.create("digits", training__phases="6", training__min_steps="400")
        with calm.stream("digits") as stream:
            stream.send(*EPISODES[0])
            stream.end()
            stream.wait_ack()
            calm.lesson("digits", EPISODES[0][0][:1], ["z"], "lesson")
            stream.send(*EPISODES[1])
            stream.end()
            stream.wait_event("learned")
            stream.wait_event("learned")
        _same(tmp_path, calm, other, "digits")
        x = EPISODES[1][0]
        assert answered(calm.predict("digits", x)) == answered(other.predict("digits", x))
    finally:
        calm.kill()


def test_an_owner_that_was_cut_off_finds_its_writes_refused_and_follows(cluster: Make) -> None:
    made = cluster(cluster__replicas=1)
    made.coordinate()
    one, two = made.start("one", "two")
    one.create("digits")
    first, other = _owner_and_other(made, "digits")
    x, y = EPISODES[0]
    first.lesson("digits", x, y, "before")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        taken = until(lambda: _owner_and_other(made, "digits")[0] is other, 60, "the other server owns it")
        assert taken
        until(lambda: _taught(other, "digits", x[:1], ["z"], "after"), 60, "a lesson at the new owner")
        epoch = made.rows("SELECT epoch FROM learners")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    until(lambda: "is owned by another server now" in first.log.read_text(), 30, "it has noticed")
    lesson = learning_pb2.TeachRequest(learner="digits", request_id="stale", inputs=tensor(x[:1]), labels=labels(["q"]))
    with refused("NOT_OWNER"):  # as a call that was on its way to it, from a server that knew no better
        first.learning.Teach(lesson, timeout=30, metadata=(("sharp-passed-on", "1"),))
    assert made.rows("SELECT epoch FROM learners") == epoch
    assert made.rows("SELECT count(*) FROM lessons WHERE request_id = 'stale'") == [(0,)]
    until(lambda: answered(first.predict("digits", x[:1])) == ["z"], 30, "it follows the new owner")


def test_a_server_that_joins_gets_its_share_and_one_that_stops_gives_it_back(cluster: Make) -> None:
    made = cluster(cluster__replicas=0)
    made.coordinate()
    (one,) = made.start("one")
    x, y = EPISODES[0]
    for name in ("a", "b"):
        one.create(name, shape=(12,))
        one.lesson(name, x, y)
    (two,) = made.start("two")
    until(lambda: {made.owner("a"), made.owner("b")} == {"one", "two"}, 60, "one learner each")
    for name in ("a", "b"):
        for server in (one, two):
            assert until(lambda server=server, name=name: _answers(server, name, x[:5]), 60, "an answer") == y[:5]
    assert two.stop() == 0
    until(lambda: made.owner("a") == made.owner("b") == "one", 60, "all at one")
    until(lambda: _taught(one, "a", x[:1], ["z"], "l") and _taught(one, "b", x[:1], ["z"], "l"), 30)
    assert [answered(one.predict(name, x[:1])) for name in ("a", "b")] == [["z"], ["z"]]


def _owner_and_other(made: Cluster, learner: str) -> tuple[Server, Server]:
    owner = until(lambda: made.owner(learner), 30, "an owner")
    return made.servers[owner], made.servers[{"one": "two", "two": "one"}[owner]]


def _opened(server: Server, learner: str) -> Stream | None:
    try:
        return server.stream(learner)
    except grpc.RpcError:
        return None


def _answers(server: Server, learner: str, x: Any) -> list[Any]:
    """What a server says, or nothing while the learner is on its way."""
    try:
        return answered(server.predict(learner, x))
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        return []


def _taught(server: Server, learner: str, x: Any, y: list[Any], request_id: str) -> bool:
    try:
        server.lesson(learner, x, y, request_id)
        return True
    except grpc.RpcError:
        return False


def _same(folder: Path, one: Server, other: Server, learner: str) -> None:
    """Two learners are equal, tensor for tensor and word for word."""
    paths = []
    for index, server in enumerate((one, other)):
        paths.append(folder / f"{index}.safetensors")
        paths[-1].write_bytes(server.exported(learner)[1])
    with safe_open(paths[0], framework="np") as left, safe_open(paths[1], framework="np") as right:
        assert json.loads(left.metadata()["learner"]) == json.loads(right.metadata()["learner"])
        assert sorted(left.keys()) == sorted(right.keys())
        for name in left.keys():  # noqa: SIM118 (it is no dictionary)
            assert np.array_equal(left.get_tensor(name), right.get_tensor(name)), name
