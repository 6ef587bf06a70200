"""A server that follows a learner answers as its owner does: versions, lessons, batches, and classes that go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharp.v1 import label_pb2, learner_admin_pb2
from tests.server.cluster.fronts import Cluster
from tests.server.running import SECONDS, answered, blobs, until


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two servers and no coordinator: tests say themselves who follows what."""
    made = Cluster(tmp_path_factory.mktemp("followed"))
    try:
        made.start("owner", "follower")
        yield made
    finally:
        made.close()


def follow(made: Cluster, name: str) -> None:
    """Make a learner at one server, which the other follows."""
    made.servers["owner"].create(name, shape=(12,))
    uid = made.servers["owner"].learner(name).uid
    made.rows("INSERT INTO cluster_placements VALUES (%s, 'owner', '{follower}') RETURNING uid", uid)
    log = made.servers["follower"].log
    until(lambda: f"{name} is followed here" in log.read_text(), 30, "it is followed")


def test_versions_lessons_and_batches_reach_a_follower_in_the_owners_order(followed: Cluster) -> None:
    owner, follower = followed.servers["owner"], followed.servers["follower"]
    follow(followed, "order")
    x, y = blobs(["a", "b", "c"], seed=1)
    owner.lesson("order", x[:9], y[:9])
    with owner.stream("order") as stream:
        stream.send(x[9:60], y[9:60])
        stream.wait_ack()
        known = owner.lesson("order", x[60:62], ["z", "z"]).examples_known
        stream.send(x[62:], y[62:])
        stream.wait_ack()
        known += len(y) - 62
        here, there = (server.predict("order", x, min_examples=known, top_k=3) for server in (owner, follower))
        assert (there.model_version, there.examples_beyond_version) == (0, len(y))
        assert here.labels == there.labels
        assert list(here.vote_shares) == list(there.vote_shares)
        stream.end()
        stream.wait_event("learned")
    here, there = (server.predict("order", x, min_model_version=1, top_k=3) for server in (owner, follower))
    assert here.labels == there.labels
    assert list(here.distances) == list(there.distances)


def test_a_forgotten_class_is_no_answer_of_a_follower_either(followed: Cluster) -> None:
    owner, follower = followed.servers["owner"], followed.servers["follower"]
    follow(followed, "forgetful")
    x, y = blobs(["a", "b"], seed=3)
    known = owner.lesson("forgetful", x, y).examples_known
    assert set(answered(follower.predict("forgetful", x, min_examples=known))) == {"a", "b"}
    label = label_pb2.Label(text="a")
    owner.admin.ForgetClass(learner_admin_pb2.ForgetClassRequest(learner="forgetful", label=label), timeout=SECONDS)
    until(lambda: set(answered(follower.predict("forgetful", x))) == {"b"}, 30, "the follower forgets it")


def test_predictions_are_answered_while_the_owner_is_gone(followed: Cluster) -> None:
    owner, follower = followed.servers["owner"], followed.servers["follower"]
    follow(followed, "orphan")
    x, y = blobs(["a", "b"], seed=4)
    known = owner.lesson("orphan", x, y).examples_known
    follower.predict("orphan", x, min_examples=known)
    owner.kill()
    try:
        assert answered(follower.predict("orphan", x[:8])) == y[:8]
    finally:
        followed.start("owner")
