"""Figures agree with cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper import metrics

NAN = float("nan")

R = np.array(
    [
        [1.0, NAN, NAN],
        [0.8, 0.9, NAN],
        [0.6, 0.95, 0.7],
    ]
)


def test_confusion_counts_rows_of_truth_and_columns_of_answers() -> None:
    confusion = metrics.confusion_matrix(np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 2, 0, 2]), 4)
    assert confusion.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 2, 0], [0, 0, 0, 0]]


def test_average_accuracy_counts_classes_alike() -> None:
    # Class 0: 1 of 2, class 1: 1 of 1, class 2: 2 of 8; the share of right answers would be 4/11.
    confusion = np.array([[1, 1, 0], [0, 1, 0], [6, 0, 2]])
    assert metrics.average_accuracy(confusion) == pytest.approx((0.5 + 1.0 + 0.25) / 3)


def test_a_class_without_examples_has_no_accuracy() -> None:
    accuracies = metrics.class_accuracies(np.array([[2, 0], [0, 0]]))
    assert accuracies[0] == 1.0 and np.isnan(accuracies[1])
    assert metrics.mean_over(accuracies, [0, 1]) == 1.0
    assert np.isnan(metrics.mean_over(accuracies, [1]))


def test_the_accuracy_matrix_groups_classes_by_the_episode_that_brought_them() -> None:
    after = [np.array([1.0, 0.5, NAN]), np.array([0.8, 0.4, 0.9])]
    matrix = metrics.accuracy_matrix(after, [(0, 1), (2,)])
    np.testing.assert_allclose(matrix, [[0.75, NAN], [0.6, 0.9]])


def test_an_episode_without_new_classes_has_no_column() -> None:
    after = [np.array([1.0]), np.array([0.5])]
    matrix = metrics.accuracy_matrix(after, [(0,), ()])
    np.testing.assert_allclose(matrix, [[1.0, NAN], [0.5, NAN]])
    assert metrics.forgetting(matrix) == 0.5


def test_forgetting_is_the_mean_loss_since_the_best() -> None:
    # Episode 1: 1.0 → 0.6, episode 2: 0.9 → 0.95 (better than ever before).
    assert metrics.forgetting(R) == pytest.approx((0.4 - 0.05) / 2)


def test_backward_transfer_is_the_mean_change_since_learning() -> None:
    assert metrics.backward_transfer(R) == pytest.approx((-0.4 + 0.05) / 2)


def test_one_episode_can_forget_nothing() -> None:
    assert metrics.forgetting(R[:1, :1]) == metrics.backward_transfer(R[:1, :1]) == 0.0


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 true classes but 1"):
        metrics.confusion_matrix(np.array([0, 1]), np.array([0]), 2)
    with pytest.raises(ValueError, match="1 episodes for 2 groups"):
        metrics.accuracy_matrix([np.array([1.0])], [(0,), (1,)])
