"""Who should own what: everybody has an owner, loads are even, nothing moves without need, and order means nothing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sharp_server.cluster.placement import place
from sharp_server.storage.board import LearnerPlacement

NODES = st.lists(st.sampled_from([f"node{i}" for i in range(8)]), unique=True, max_size=8)


@st.composite
def learners(draw: st.DrawFn) -> list[LearnerPlacement]:
    count = draw(st.integers(0, 40))
    owners = st.one_of(st.none(), st.sampled_from([f"node{i}" for i in range(8)]))
    followers = st.lists(st.sampled_from([f"node{i}" for i in range(8)]), unique=True, max_size=3).map(tuple)
    return [LearnerPlacement(f"uid{i}", draw(owners), draw(followers)) for i in range(count)]


@given(learners(), NODES, st.integers(0, 4))
def test_every_learner_has_an_owner_and_its_followers_as_far_as_there_are_servers(
    known: list[LearnerPlacement], nodes: list[str], replicas: int
) -> None:
    placed = place(known, nodes, {learner.uid: replicas for learner in known})
    assert placed.keys() == {learner.uid for learner in known}
    for placement in placed.values():
        assert placement.owner in nodes if nodes else placement.owner is None
        assert len(set(placement.followers)) == len(placement.followers) == max(0, min(replicas, len(nodes) - 1))
        assert set(placement.followers) <= set(nodes) - {placement.owner}


@given(learners(), NODES.filter(bool))
def test_no_server_owns_two_more_than_another(known: list[LearnerPlacement], nodes: list[str]) -> None:
    loads = Counter(placement.owner for placement in place(known, nodes, {}).values())
    counts = [loads[node] for node in nodes]
    assert max(counts) - min(counts) <= 1


@given(learners(), NODES.filter(bool))
def test_a_learner_leaves_a_living_server_only_if_that_has_more_than_its_share(
    known: list[LearnerPlacement], nodes: list[str]
) -> None:
    placed = place(known, nodes, {})
    had = Counter(learner.owner for learner in known)
    for node in nodes:
        left = [learner for learner in known if learner.owner == node and placed[learner.uid].owner != node]
        came = [learner for learner in known if learner.owner != node and placed[learner.uid].owner == node]
        assert not (left and came)
        share = len(known) // len(nodes)
        assert len(left) <= max(0, had[node] - share)


@given(learners(), NODES, st.integers(0, 3))
def test_what_is_placed_stays_where_it_is(known: list[LearnerPlacement], nodes: list[str], replicas: int) -> None:
    wanted = {learner.uid: replicas for learner in known}
    placed = place(known, nodes, wanted)
    assert place(placed.values(), nodes, wanted) == placed


@given(learners(), NODES, st.randoms())
def test_the_order_of_learners_and_servers_means_nothing(
    known: list[LearnerPlacement], nodes: list[str], random: object
) -> None:
    shuffled, others = list(known), list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    random.shuffle(others)  # type: ignore[attr-defined]
    wanted = {learner.uid: 1 for learner in known}
    assert place(shuffled, others, wanted) == place(known, nodes, wanted)
