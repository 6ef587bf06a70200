"""The figures of the learner's experiments, against cases that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learner import metrics, references
from benchmarks.learner.few import Scene, draw_examples
from benchmarks.learner.metrics import auroc, divided, expected_calibration_error
from benchmarks.learner.summary import summarise
from benchmarks.paper.scenario import in_random_order


def test_accuracy_counts_classes_alike() -> None:
    truth, predicted = np.array([0, 0, 0, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 0])
    assert metrics.accuracy(truth, predicted) == pytest.approx((0.75 + 1.0 + 0.0) / 3)
    assert metrics.accuracy(truth, predicted, [0, 2]) == pytest.approx(0.375)
    assert np.isnan(metrics.accuracy(truth, predicted, [7]))


def test_accuracy_is_divided_into_classes_of_few_and_others() -> None:
    found = divided(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0]), few=[2])
    assert (found.few, found.others) == (0.0, 0.75)
    assert found.overall == pytest.approx(0.5)


def test_the_calibration_error_weighs_bins_by_their_size() -> None:
    # A bin with four answers of 0.75, three right: no error. A bin with two of 1.0, one right: 0.5. Together 2/6 · 0.5.
    share = np.array([0.75, 0.75, 0.75, 0.75, 1.0, 1.0])
    right = np.array([True, True, True, False, True, False])
    assert expected_calibration_error(share, right) == pytest.approx(1 / 6)


def test_errors_within_a_bin_cancel_and_those_of_two_bins_do_not() -> None:
    share, right = np.array([0.61, 0.65]), np.array([True, False])  # both in (9/15, 10/15]
    assert expected_calibration_error(share, right) == pytest.approx(abs(1.0 - 1.26) / 2)
    share = np.array([0.61, 0.95])
    assert expected_calibration_error(share, right) == pytest.approx((0.39 + 0.95) / 2)


def test_shares_at_the_edges_have_a_bin() -> None:
    assert expected_calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0.0


def test_the_area_under_the_curve_counts_pairs_and_halves_ties() -> None:
    assert auroc(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert auroc(np.array([1.0]), np.array([2.0, 3.0])) == 0.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0])) == 0.5
    assert auroc(np.array([2.0, 5.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx((1 + 0.5 + 0 + 3) / 6)


def test_seeds_are_put_together_name_by_name() -> None:
    runs = [
        {"seed": 4, "a": 1.0, "nested": {"b": 2, "word": "x"}, "list": [1], "flag": True},
        {"seed": 9, "a": 3.0, "nested": {"b": 5, "word": "y"}, "list": [2], "flag": True},
    ]
    assert summarise(runs) == {
        "mean": {"a": 2.0, "nested": {"b": 3.5}},
        "std": {"a": 1.0, "nested": {"b": 1.5}},
        "least": {"a": 1.0, "nested": {"b": 2.0}},
        "most": {"a": 3.0, "nested": {"b": 5.0}},
        "spread": {"a": 2.0, "nested": {"b": 3.0}},
    }


def test_plain_methods_answer_as_they_should_on_clouds_far_apart() -> None:
    random = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    y = np.repeat(np.arange(3), 20)
    x = centres[y] + random.normal(size=(60, 2))
    for answer in (references.discriminant, references.nearest_neighbours):
        assert answer(x, y + 5, centres).tolist() == [5, 6, 7]


def test_the_discriminant_takes_a_class_of_one_example_for_as_likely_as_the_others() -> None:
    random = np.random.default_rng(1)
    x = np.concatenate((random.normal(size=(400, 2)), random.normal(size=(400, 2)) + [6.0, 0.0], [[3.0, 8.0]]))
    y = np.repeat([0, 1, 2], [400, 400, 1])
    halfway = np.array([[1.5, 4.2]])  # a little nearer to the single example than to class 0
    assert references.discriminant(x, y, halfway).tolist() == [2]


def test_the_distance_to_neighbours_is_the_mean_of_five() -> None:
    x = np.arange(10.0)[:, None]
    assert references.neighbour_distance(x, np.array([[0.0]])).tolist() == [2.0]
    assert references.neighbour_distance(x[:2], np.array([[0.0]])).tolist() == [0.5]


def test_a_random_order_shows_every_class_once_and_depends_on_the_seed() -> None:
    orders = [in_random_order(11, 4, seed) for seed in (0, 0, 1)]
    assert [len(episode) for episode in orders[0]] == [4, 4, 3]
    assert sorted(c for episode in orders[0] for c in episode) == list(range(11))
    assert orders[0] == orders[1] != orders[2]


def test_classes_of_few_and_the_others_do_not_overlap() -> None:
    few, others = Scene("banking77", 8, 7).draw(77, seed=3)
    assert len(few) == 8 and sorted(few + others) == list(range(77))
    few, others = Scene("cifar10", 1, 2, known=2).draw(10, seed=3)
    assert len(few) == 1 and len(others) == 2 and not set(few) & set(others)


def test_five_examples_contain_the_one() -> None:
    from benchmarks.datasets import synthetic

    train = synthetic.images(4, 9, (1, 4, 4))
    one, five = (draw_examples(train, [1, 3], number, seed=2) for number in (1, 5))
    assert one.y.tolist() == [1, 3] and np.bincount(five.y).tolist() == [0, 5, 0, 5]
    assert {x.tobytes() for x in one.x} <= {x.tobytes() for x in five.x}
