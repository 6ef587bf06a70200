"""Bad input raises a typed error that names the offending value, and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sharp_engine.errors
from sharp_engine import (
    ConfigError,
    DtypeError,
    EmptyEpisodeError,
    InputError,
    LabelError,
    Learner,
    NonFiniteError,
    NoPositivePairError,
    NothingLearnedError,
    ShapeError,
    SharpError,
    UnknownClassError,
)
from sharp_engine.checks import check_same
from tests.engine.fixtures import IMAGE, change, convnet, examples, mlp, trained

X, Y = examples((0, 1), each=4, seed=3)


def with_value(value: float) -> torch.Tensor:
    x = X.clone()
    x[5, 2] = value
    return x


BAD_EXAMPLES: list[tuple[str, Any, type[InputError], str]] = [
    ("too few features", X[:, :5], ShapeError, r"\(6,\), not \(5,\)"),
    ("too many axes", X[:, None], ShapeError, r"not \(1, 6\)"),
    ("a single example", X[0], ShapeError, r"\(6,\)"),
    ("a scalar", torch.tensor(1.0), ShapeError, r"\(6,\)"),
    ("whole numbers", X.long(), DtypeError, "int64"),
    ("booleans", X > 0.5, DtypeError, "bool"),
    ("complex numbers", X.to(torch.complex64), DtypeError, "complex64"),
    ("an array of whole numbers", X.numpy().astype(np.int32), DtypeError, "int32"),
    ("a NaN", with_value(float("nan")), NonFiniteError, "example 5 has the value nan"),
    ("an infinity", with_value(float("inf")), NonFiniteError, "example 5 has the value inf"),
    ("a negative infinity", with_value(-float("inf")).numpy(), NonFiniteError, "example 5 has the value -inf"),
    ("too large for float32", with_value(1.0).double() * 1e300, NonFiniteError, "inf"),
    ("words", ["a", "b"], InputError, "list"),
    ("objects", np.array([object()] * 8), InputError, "ndarray"),
    ("rows of different lengths", [[1.0, 2.0], [1.0]], InputError, "list"),
    ("nothing", None, InputError, "NoneType"),
]

BAD_LABELS: list[tuple[str, Any, str]] = [
    ("too few", Y[:7], "8 examples but 7 labels"),
    ("too many", [*Y, 0], "8 examples but 9 labels"),
    ("none", [], "8 examples but 0 labels"),
    ("floats", [float(label) for label in Y], "0.0|1.0"),
    ("a float array", np.array(Y, dtype=float), "0.0|1.0"),
    ("booleans", [True] * 8, "True"),
    ("mixed kinds", [*Y[:7], "seven"], "'seven'"),
    ("another kind", ["seven"] * 8, "'seven'"),
    ("bytes", [b"x"] * 8, "b'x'"),
    ("a word", "abcdefgh", "'abcdefgh'"),
    ("absent ones", [None] * 8, "None"),
    ("rows", [[0]] * 8, r"\[0\]"),
    ("beyond 64 bits", [2**63] * 8, str(2**63)),
    ("nothing at all", None, "None"),
    ("a number", 3, "3"),
    ("a scalar tensor", torch.tensor(3), "3"),
]


@pytest.fixture(scope="module")
def known() -> Learner:
    """A learner of integers that has learned three episodes; tests may not change it."""
    return trained(mlp())


def check_refused(learner: Learner, call: Callable[[], object], error: type[SharpError], message: str) -> None:
    """The call raises exactly this type, says what was wrong, and the learner is as before."""
    before = copy.deepcopy(learner)
    with pytest.raises(error, match=message) as raised:
        call()
    assert type(raised.value) is error
    check_same(before, learner)


@pytest.mark.parametrize(
    ("x", "error", "message"), [case[1:] for case in BAD_EXAMPLES], ids=[c[0] for c in BAD_EXAMPLES]
)
@pytest.mark.parametrize("call", ["learn_episode", "observe", "predict"])
def test_bad_examples_are_refused(known: Learner, call: str, x: Any, error: type[InputError], message: str) -> None:
    arguments = (x,) if call == "predict" else (x, Y)
    check_refused(known, lambda: getattr(known, call)(*arguments), error, message)


@pytest.mark.parametrize(("y", "message"), [case[1:] for case in BAD_LABELS], ids=[case[0] for case in BAD_LABELS])
@pytest.mark.parametrize("call", ["learn_episode", "observe"])
def test_bad_labels_are_refused(known: Learner, call: str, y: Any, message: str) -> None:
    check_refused(known, lambda: getattr(known, call)(X, y), LabelError, message)


def test_a_label_longer_than_can_be_kept_is_refused_and_shortened_in_the_message(known: Learner) -> None:
    with pytest.raises(LabelError, match="2000 characters") as raised:
        known.observe(X, ["x" * 2000] * 8)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("call", ["learn_episode", "observe"])
def test_an_empty_batch_is_refused(known: Learner, call: str) -> None:
    check_refused(known, lambda: getattr(known, call)(X[:0], []), EmptyEpisodeError, "no examples")


def test_predicting_an_empty_batch_answers_nothing(known: Learner) -> None:
    answer = known.predict(X[:0], top=2, memories=2)
    assert len(answer) == 0 and answer.labels == []
    assert answer.top_share.shape == (0, 2) and answer.memory_distance.shape == (0, 2)


def test_an_episode_without_a_positive_pair_is_refused(known: Learner) -> None:
    check_refused(known, lambda: known.learn_episode(X[:3], [0, 1, 2]), NoPositivePairError, "among 3")
    check_refused(known, lambda: known.learn_episode(X[:1], [0]), NoPositivePairError, "among 1")


def test_ending_an_episode_without_a_positive_pair_is_refused_and_waits_for_more() -> None:
    learner = trained(mlp())
    for i in range(3):
        learner.observe(X[i : i + 1], [10 + i])
    check_refused(learner, learner.end_episode, NoPositivePairError, "among 3")
    learner.observe(X[3:4], [10])
    learner.end_episode()
    assert learner.inspect().episodes == 4


def test_ending_an_episode_without_examples_is_refused(known: Learner) -> None:
    check_refused(known, known.end_episode, EmptyEpisodeError, "nothing was observed")


@pytest.mark.parametrize("label", [99, "0", -1])
def test_forgetting_an_unknown_class_is_refused(known: Learner, label: Any) -> None:
    check_refused(known, lambda: known.forget(label), UnknownClassError, repr(label))


@pytest.mark.parametrize("options", [{"top": -1}, {"memories": -2}])
def test_asking_for_less_than_nothing_is_refused(known: Learner, options: dict[str, Any]) -> None:
    check_refused(known, lambda: known.predict(X, **options), InputError, str(*options.values()))


def test_a_learner_that_learned_nothing_names_nothing() -> None:
    for learner in (Learner(mlp()), Learner(change(mlp(), input_shape=(6,)))):
        check_refused(learner, partial(learner.predict, X), NothingLearnedError, "nothing was learned")
        check_refused(learner, partial(learner.forget, 0), UnknownClassError, "0")


@pytest.mark.parametrize("call", ["learn_episode", "observe"])
def test_a_first_batch_that_does_not_fit_the_architecture_changes_nothing(call: str) -> None:
    too_small = torch.rand(8, 1, 3, 3)
    for learner, x, message in (
        (Learner(convnet()), too_small, r"\(1, 3, 3\) are too small"),
        (Learner(convnet()), X, r"not \(6,\)"),
        (Learner(change(convnet(), kind="auto", layers=(), cut=None)), torch.rand(8, 1, 80, 80), "80×80"),
        (Learner(change(mlp(), mean=(0.5, 0.5))), X, "one value or 6, not 2"),
    ):
        check_refused(learner, partial(getattr(learner, call), x, Y), ConfigError, message)


def test_a_first_batch_may_have_neither_two_nor_three_axes() -> None:
    for x in (torch.rand(8), torch.rand(8, 3, 3), torch.rand(8, 1, 1, 3, 3), torch.rand(8, 0), torch.rand(8, 1, 0, 4)):
        learner = Learner(mlp())
        check_refused(learner, partial(learner.observe, x, Y), ShapeError, r"\(")


def test_a_refused_first_batch_does_not_settle_the_shape() -> None:
    learner = Learner(mlp())
    with pytest.raises(LabelError):
        learner.observe(X[:, :3], Y[:2])
    learner.learn_episode(X, Y)
    assert learner.architecture is not None and learner.architecture.input_shape == (6,)


def test_images_of_another_shape_are_refused_with_both_shapes() -> None:
    learner = trained(convnet(), ((0, 1),), IMAGE)
    with pytest.raises(ShapeError, match=r"\(1, 8, 8\), not \(3, 8, 8\)"):
        learner.predict(torch.rand(2, 3, 8, 8))


def test_every_error_of_the_engine_has_one_base_and_stands_in_the_tree() -> None:
    tree = sharp_engine.errors.__doc__ or ""
    errors = [e for e in vars(sharp_engine.errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(errors) >= 15
    for error in errors:
        assert issubclass(error, SharpError)
        assert error.__name__ in tree
        assert error is getattr(sharp_engine, error.__name__)


@pytest.mark.parametrize("call", ["learn_episode", "end_episode"])
def test_an_episode_with_more_classes_than_short_term_memory_can_hold_is_refused_and_changes_nothing(call: str) -> None:
    learner = trained(mlp(stm_capacity=4), ((0, 1),))
    x, y = examples((2, 3, 4, 5, 6))
    if call == "end_episode":
        learner.observe(x, y)
    before = copy.deepcopy(learner)
    with pytest.raises(ConfigError, match="stm_capacity of 4 cannot hold an example of each of the 5 classes"):
        learner.learn_episode(x, y) if call == "learn_episode" else learner.end_episode()
    check_same(learner, before)
