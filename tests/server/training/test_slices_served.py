"""Slices on a real server: small episodes pass large ones, and a learner between two slices can be changed or lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import safetensors.numpy

from sharp.v1 import label_pb2, learner_admin_pb2, learner_pb2, snapshot_pb2
from tests.server.running import SECONDS, Server, Stream, answered, blobs, until

SLICED: dict[str, Any] = {"training__phases": "20", "training__min_steps": "75"}
LONG: dict[str, Any] = {"training__phases": "3", "training__min_steps": "500"}
PASSING: dict[str, Any] = {"training__phases": "2", "training__min_steps": "225"}
"""Less than a third of it, in phases that take a while."""
X, Y = blobs("abc", each=60)


def begin(server: Server, name: str, settings: dict[str, Any], examples: Any = (X, Y)) -> Stream:
    """A learner whose episode is being learned."""
    server.create(name, **settings)
    stream = server.stream(name)
    stream.send(*examples)
    stream.end()
    return stream


@pytest.fixture
def between(lend: Callable[..., Server]) -> Iterator[tuple[Server, Stream, Stream]]:
    """A server with a learner that stands between two slices, while the trainer is at another."""
    server = lend()
    with begin(server, "first", SLICED) as first:
        first.wait_event("progress")
        with begin(server, "other", PASSING) as other:
            other.wait_event("started")
            yield server, first, other


def finish(stream: Stream) -> Any:
    return stream.wait_event("learned").learned


def test_a_small_episode_passes_a_large_one_which_is_learned_the_same(
    lend: Callable[..., Server], serve: Callable[..., Server]
) -> None:
    server, whole = lend(), serve(trainer__slices=False)
    with begin(server, "large", LONG) as large:
        large.wait_event("progress")
        server.create("small")
        assert server.teach("small", blobs("ab")) == 1
        assert server.learner("large").status.model_version == 0, "it is still at it"
        finish(large)
        kinds = [event.WhichOneof("event") for event in large.seen]
        assert kinds.count("started") == 1 and kinds[-1] == "learned"
        fractions = [event.progress.fraction for event in large.seen if event.HasField("progress")]
        assert (
            fractions == sorted(fractions) or max(a - b for a, b in zip(fractions, fractions[1:], strict=False)) < 0.2
        )
    with begin(whole, "large", LONG) as alone:
        finish(alone)
    assert list(server.predict("large", X).distances) == list(whole.predict("large", X).distances)
    assert answered(server.predict("small", X[:1])) != []


def test_a_taught_learner_whose_episode_is_suspended_ends_with_the_same_bits(lend: Callable[..., Server]) -> None:
    """Lessons come before the episode, and while it is suspended for a small learner."""
    found = []
    for passed in (True, False):
        server = lend(teaching__version_seconds=3600)
        server.create("large", **LONG)
        for i in range(4):
            server.lesson("large", *blobs("d", each=1, seed=i))
        with server.stream("large") as large:
            large.send(X, Y)
            large.end()
            large.wait_event("progress")
            if passed:
                server.create("small", **PASSING)
                with server.stream("small") as small:
                    small.send(*blobs("ab"))
                    small.end()
                    small.wait_event("started")
                    server.lesson("large", *blobs("e", each=2))
                    assert finish(small).model_version == 1
                assert server.learner("large").status.model_version == 0, "it is still at it"
            else:
                server.lesson("large", *blobs("e", each=2))
            assert finish(large).model_version == 1
        _, version = server.exported("large")
        probes = blobs("abcde", each=10, seed=9)[0]
        answer = server.predict("large", probes, top_k=5, nearest_memories=3, novelty=True)
        assert answer.examples_beyond_version == 2 and {"d", "e"} <= set(answered(answer))
        found.append((load(version), answer.labels, answer.vote_shares[:], answer.distances[:], answer.details[:]))
    assert found[0] == found[1]


def load(version: bytes) -> dict[str, bytes]:
    """The tensors of a version, each as its bytes."""
    return {name: array.tobytes() for name, array in safetensors.numpy.load(version).items()}


def test_between_two_slices_a_learner_is_in_training_and_says_how_far(between: Any) -> None:
    server, first, other = between
    status = server.learner("first").status
    assert (status.state, status.training_episode) == (learner_pb2.LEARNER_STATE_TRAINING, 1)
    assert status.progress.phases == 20
    finish(first)
    finish(other)


def test_a_class_is_forgotten_between_two_slices(between: Any) -> None:
    server, first, _ = between
    request = learner_admin_pb2.ForgetClassRequest(learner="first", label=label_pb2.Label(text="c"))
    done = server.admin.ForgetClass(request, timeout=SECONDS)
    assert done.journal_examples == Y.count("c")
    learned = finish(first)
    assert sorted(learned.statistics.classes.texts.values) == ["a", "b"]
    assert set(answered(server.predict("first", X))) == {"a", "b"}


def test_a_learner_is_deleted_between_two_slices(between: Any) -> None:
    server, _, other = between
    server.admin.DeleteLearner(learner_admin_pb2.DeleteLearnerRequest(name="first"), timeout=SECONDS)
    finish(other)
    assert server.teach("other", blobs("de"), stream_id="t") == 2


def test_a_snapshot_is_restored_between_two_slices_and_the_episode_starts_over_on_it(
    lend: Callable[..., Server],
) -> None:
    server = lend()
    server.create("first", **SLICED)
    server.teach("first", blobs("xy"))
    snapshots = server.admin.ListSnapshots(snapshot_pb2.ListSnapshotsRequest(learner="first")).snapshots
    with server.stream("first", "t") as first:
        first.send(X, Y)
        first.end()
        first.wait_event("progress")
        with begin(server, "other", PASSING) as other:
            other.wait_event("started")
            request = snapshot_pb2.RestoreSnapshotRequest(learner="first", snapshot_id=snapshots[0].id)
            assert server.admin.RestoreSnapshot(request, timeout=SECONDS).model_version == 2
            first.wait_event("started")
            assert finish(first).model_version == 3
    assert set(answered(server.predict("first", X))) <= set("abcxy")


@pytest.mark.parametrize("victim", ["trainer", "server"])
def test_learners_between_slices_survive_a_kill(victim: str, between: Any) -> None:
    server, first, other = between
    if victim == "trainer":
        os.kill(server.trainer_pid(), signal.SIGKILL)
        finish(first)
        finish(other)
    else:
        server.kill()
        server.restart()
        for name in ("first", "other"):
            until(lambda name=name: server.learner(name).status.model_version == 1, SECONDS, name)
    with begin(server, "undisturbed", SLICED) as alone:
        finish(alone)
    assert list(server.predict("first", X).distances) == list(server.predict("undisturbed", X).distances)
