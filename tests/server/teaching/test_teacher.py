"""The teacher dies: nothing is lost, answers are right afterwards, predictions go on, and nothing is tried for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from devtools.process_stats import children
from sharp.v1 import snapshot_pb2
from tests.server.running import Server, answered, blobs, in_thread, until

CLASSES = ["ash", "birch", "cedar"]
X, Y = blobs(CLASSES, each=10)
PROBES, TRUTH = blobs(CLASSES, each=10, seed=1)


def bits(server: Server, name: str, **options: Any) -> bytes:
    """Everything that an answer says, but for how long it took."""
    found = server.predict(name, PROBES, top_k=3, nearest_memories=2, novelty=True, **options)
    found.ClearField("time_in_queue")
    found.ClearField("time_in_compute")
    return bytes(found.SerializeToString(deterministic=True))


@pytest.fixture
def server(lend: Callable[..., Server]) -> Server:
    """Makes no version of lessons by itself."""
    server = lend(teaching__version_seconds=3600)
    server.create("trees")
    return server


def test_a_teacher_that_is_killed_in_the_middle_of_lessons_loses_none_of_them(server: Server) -> None:
    lessons, answers = len(X), list[Any]()
    threads = []
    for i in range(lessons):
        threads.append(in_thread(lambda i=i: answers.append(server.lesson("trees", X[i : i + 1], Y[i : i + 1]))))
        if i in (8, 20):
            server.kill_teacher()
    for thread in threads:
        thread.join(120)
    assert len(answers) == lessons
    assert all(not taught.repetition for taught in answers)
    found = server.predict("trees", PROBES, min_examples=lessons)
    assert answered(found) == TRUTH
    assert found.examples_beyond_version == lessons
    before = bits(server, "trees")
    server.kill()
    server.restart()
    assert bits(server, "trees") == before


def test_what_was_known_is_made_again_though_nobody_asks_and_predictions_do_not_wait(server: Server) -> None:
    server.lesson("trees", X, Y)
    with server.stream("trees") as stream:
        stream.send(*blobs(["elm"], each=5))
        stream.wait_ack()
        before = bits(server, "trees", min_examples=35)
        restarts = server.status().teacher.restarts
        old = server.teacher_pid()
        server.kill_teacher()
        assert bits(server, "trees") == before
        until(lambda: server.status().teacher.restarts == restarts + 1, what="word of the restart")
        assert server.lesson("trees", X[:1], ["fir"]).examples_known == 36
        assert server.teacher_pid() != old
        assert answered(server.predict("trees", X[:1])) == ["fir"]
        after = bits(server, "trees", min_examples=36)
    server.kill()
    server.restart()
    assert bits(server, "trees", min_examples=36) == after


def test_lessons_become_a_version_after_the_teacher_died(server: Server) -> None:
    server.lesson("trees", X, Y)
    server.kill_teacher()
    server.lesson("trees", X[:1], ["elm"])
    snapshot = snapshot_pb2.CreateSnapshotRequest(learner="trees")
    assert server.admin.CreateSnapshot(snapshot, timeout=60).snapshot.model_version == 1
    assert server.learner("trees").status.backlog.lessons == 0
    assert server.learner("trees").status.examples_known == 31


def test_an_episode_is_published_though_the_teacher_died(server: Server) -> None:
    server.teach("trees", (X, Y))
    server.kill_teacher()
    assert server.teach("trees", (blobs(["elm"], each=10)[0], ["elm"] * 10)) == 2
    assert answered(server.predict("trees", PROBES)) == TRUTH


def test_a_teacher_that_hangs_is_killed_and_its_lesson_is_known_all_the_same(lend: Callable[..., Server]) -> None:
    server = lend(teaching__version_seconds=3600, teaching__watchdog_seconds=3)
    server.create("trees")
    server.lesson("trees", X, Y)
    os.kill(server.teacher_pid(), signal.SIGSTOP)
    before = bits(server, "trees")
    assert server.lesson("trees", X[:1], ["fir"]).examples_known == 31
    assert server.status().teacher.restarts == 1
    assert answered(server.predict("trees", X[:1])) == ["fir"]
    assert before != bits(server, "trees")


def test_the_teacher_ends_with_a_server_that_is_killed(serve: Callable[..., Server]) -> None:
    server = serve()
    teacher = server.teacher_pid()
    os.kill(teacher, signal.SIGSTOP)  # it can't even notice
    assert teacher in children(server.pid)
    server.kill()

    def gone() -> bool:
        try:
            with open(f"/proc/{teacher}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone, what="the end of the teacher")


def test_the_teacher_ends_with_a_server_that_stops(serve: Callable[..., Server]) -> None:
    server = serve()
    teacher = server.teacher_pid()
    begun = time.monotonic()
    assert server.stop() == 0
    assert not os.path.exists(f"/proc/{teacher}")
    assert time.monotonic() - begun < 60
