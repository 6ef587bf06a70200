"""How good a version is: kept as written, and compared with the one before it without crying at chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharp_engine import ClassQuality, Confusion, Quality
from sharp_server.prediction.quality import MeasuredVersion, compare, from_json, to_json

labels = st.one_of(st.text(min_size=1, max_size=20), st.integers(-(2**63), 2**63 - 1))


@given(
    st.lists(
        st.tuples(labels, st.integers(1, 50)).flatmap(lambda p: st.tuples(*map(st.just, p), st.integers(0, p[1])))
    ),
    st.lists(st.tuples(labels, labels, st.integers(1, 50))),
)
def test_what_is_written_down_is_read_again(
    classes: list[tuple[str | int, int, int]], pairs: list[tuple[str | int, str | int, int]]
) -> None:
    quality = Quality(tuple(ClassQuality(*entry) for entry in classes), tuple(Confusion(*pair) for pair in pairs))
    assert from_json(to_json(quality)) == quality


def measured(version: int, **right: tuple[int, int]) -> MeasuredVersion:
    """A version with (right, of) for each class."""
    classes = tuple(ClassQuality(label, examples, count) for label, (count, examples) in right.items())
    return MeasuredVersion(version, 1.0, Quality(classes, ()))


@pytest.mark.parametrize(
    ("before", "now", "fell"),
    [
        ((30, 30), (20, 30), True),  # a third of it
        ((30, 30), (28, 30), False),  # 7 points, but two examples of thirty may be chance
        ((5, 5), (4, 5), False),  # 20 points of five examples say nothing
        ((990, 1000), (930, 1000), True),  # 6 points of a thousand are no chance
        ((990, 1000), (945, 1000), False),  # no chance either, but under the threshold
        ((20, 30), (30, 30), False),  # it got better
    ],
)
def test_a_class_fell_if_it_lost_more_than_the_threshold_and_than_chance_explains(
    before: tuple[int, int], now: tuple[int, int], fell: bool
) -> None:
    report = compare(measured(2, a=now, b=(30, 30)), measured(1, a=before, b=(30, 30)), 5.0)
    assert [fall.now.label for fall in report.fallen] == (["a"] if fell else [])


def test_the_worst_fall_comes_first_and_classes_of_one_version_only_are_no_falls() -> None:
    before = measured(1, a=(30, 30), b=(30, 30), gone=(30, 30))
    report = compare(measured(2, a=(15, 30), b=(5, 30), new=(0, 30)), before, 5.0)
    assert [fall.now.label for fall in report.fallen] == ["b", "a"]
    assert report.fallen[1].points == 50.0
    assert compare(before, None, 5.0).fallen == compare(None, before, 5.0).fallen == ()


def test_two_samples_of_the_same_accuracy_seldom_count_as_a_fall() -> None:
    import random

    rng = random.Random(0)
    draws = [[sum(rng.random() < 0.9 for _ in range(30)) for _ in range(2)] for _ in range(1000)]
    falls = sum(bool(compare(measured(2, a=(now, 30)), measured(1, a=(then, 30)), 5.0).fallen) for then, now in draws)
    assert falls < 50, "of a thousand comparisons in which nothing changed"
