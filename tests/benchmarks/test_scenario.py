"""Sequences are the paper's, and no example is shown twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import DataError, OptionError
from benchmarks.paper import scenario
from benchmarks.paper.scenario import Blurry

blurries = st.integers(1, 15).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.builds(Blurry, st.integers(1, classes), st.floats(0.05, 1.0)),
        st.integers(0, 2**32),
    )
)


@pytest.mark.parametrize(
    ("dataset", "classes", "episodes"), [("mnist", 10, 5), ("emnist-letters", 26, 13), ("cifar100", 100, 10)]
)
def test_the_papers_sequences_have_its_number_of_episodes(dataset: str, classes: int, episodes: int) -> None:
    sequence = scenario.class_incremental(classes, scenario.CLASSES_PER_EPISODE[dataset])
    assert len(sequence) == episodes
    assert [c for episode in sequence for c in episode] == list(range(classes))


@given(blurries)
def test_every_class_is_seen_and_none_twice_in_an_episode(case: tuple[int, Blurry, int]) -> None:
    classes, blurry, seed = case
    sequence = scenario.blurry_sequence(classes, blurry, seed)
    assert {c for episode in sequence for c in episode} == set(range(classes))
    assert all(len(set(episode)) == len(episode) == blurry.classes for episode in sequence)


@given(blurries)
def test_the_sequence_ends_with_the_episode_that_brings_the_last_class(case: tuple[int, Blurry, int]) -> None:
    classes, blurry, seed = case
    sequence = scenario.blurry_sequence(classes, blurry, seed)
    assert {c for episode in sequence[:-1] for c in episode} != set(range(classes))


@given(blurries)
def test_the_same_seed_gives_the_same_sequence(case: tuple[int, Blurry, int]) -> None:
    classes, blurry, seed = case
    assert scenario.blurry_sequence(classes, blurry, seed) == scenario.blurry_sequence(classes, blurry, seed)


def test_full_novelty_never_shows_a_class_again_while_new_ones_are_left() -> None:
    sequence = scenario.blurry_sequence(9, Blurry(3, 1.0), seed=0)
    assert len(sequence) == 3 and len({c for episode in sequence for c in episode}) == 9


def test_novelty_is_the_share_of_places_that_go_to_new_classes() -> None:
    sequence = scenario.blurry_sequence(1000, Blurry(5, 0.3), seed=0)
    places = 5 * (len(sequence) - 1)
    assert 995 / places == pytest.approx(0.3, abs=0.03)


@given(blurries)
def test_dealing_shows_every_example_exactly_once_and_where_its_class_belongs(case: tuple[int, Blurry, int]) -> None:
    classes, blurry, seed = case
    sequence = scenario.blurry_sequence(classes, blurry, seed)
    appearances = max(sum(c in episode for episode in sequence) for c in range(classes))
    y = np.repeat(np.arange(classes), 2 * appearances + 1)
    episodes = scenario.deal(y, sequence, seed)
    assert sorted(np.concatenate([e.index for e in episodes]).tolist()) == list(range(len(y)))
    assert all(set(y[e.index].tolist()) == set(e.classes) for e in episodes)
    for class_id in range(classes):
        shares = [int((y[e.index] == class_id).sum()) for e in episodes if class_id in e.classes]
        assert max(shares) - min(shares) <= 1 and min(shares) >= scenario.LEAST_EXAMPLES


def test_a_class_with_too_few_examples_for_its_appearances_is_named() -> None:
    with pytest.raises(DataError, match="class 1 has 3 examples for 2 episodes"):
        scenario.deal(np.array([0, 0, 0, 0, 1, 1, 1]), [(0, 1), (1, 0)], seed=0)


def test_figures_that_cannot_be_are_named() -> None:
    with pytest.raises(OptionError, match="eta of blurry must be in"):
        Blurry(3, 0.0)
    with pytest.raises(OptionError, match="not 11"):
        scenario.blurry_sequence(10, Blurry(11, 0.5), seed=0)
    with pytest.raises(OptionError, match="classes per episode"):
        scenario.class_incremental(3, 4)
