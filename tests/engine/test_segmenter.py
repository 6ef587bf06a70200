"""Streams without boundary signals: where they are cut, where not, and the same however they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sharp_engine import Cancelled, Learner, Segmenter, StreamConfig
from sharp_engine.checks import check_same
from tests.engine.fixtures import CancelAfter, examples, mlp

INPUTS = 5
CONFIG = StreamConfig(boundaries="automatic", window=32, min_examples=64, max_examples=2000)


def stream(*parts: tuple[int, Sequence[float]], seed: int = 0, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Parts of so many examples with such a mix of classes; `shift` moves the inputs from part to part."""
    generator = torch.Generator().manual_seed(seed)
    labels, inputs = [], []
    for number, (count, mix) in enumerate(parts):
        y = torch.multinomial(torch.tensor(mix, dtype=torch.float64), count, replacement=True, generator=generator)
        noise = torch.randn(count, INPUTS, generator=generator)
        labels.append(y)
        inputs.append(noise + 4.0 * y[:, None] + shift * number)
    return torch.cat(inputs), torch.cat(labels)


def cuts_of(x: Tensor, y: Tensor, config: StreamConfig = CONFIG, batch: int = 10**6) -> list[int]:
    segmenter = Segmenter(config, x[0].numel(), seed=0)
    return [cut for a in range(0, len(y), batch) for cut in segmenter.feed(x[a : a + batch], y[a : a + batch])]


# ---- where the labels change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [64, 200, 777])
def test_a_change_to_other_classes_is_cut_where_it_happens(length: int, seed: int) -> None:
    x, y = stream((length, [1, 1, 0, 0]), (300, [0, 0, 1, 1]), seed=seed)
    assert cuts_of(x, y) == [length]


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_some_of_the_classes_is_cut_near_where_it_happens(seed: int) -> None:
    x, y = stream((300, [1, 1, 0]), (300, [0, 1, 1]), seed=seed)
    (cut,) = cuts_of(x, y)
    # Half the examples are of the class that stays: the last of the old ones may lie a few before the change.
    assert abs(cut - 300) <= 12


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_the_mix_alone_is_cut_near_where_it_happens(seed: int) -> None:
    x, y = stream((400, [9, 1]), (400, [1, 9]), seed=seed)
    (cut,) = cuts_of(x, y)
    assert abs(cut - 400) <= CONFIG.window


def test_many_episodes_are_found_without_knowing_how_many() -> None:
    lengths = [100, 250, 80, 150, 300, 90]
    parts = []
    for i, length in enumerate(lengths):
        mix = [0.0] * 12
        mix[2 * i] = mix[2 * i + 1] = 1.0
        parts.append((length, mix))
    x, y = stream(*parts, seed=3)
    assert cuts_of(x, y) == lengths[:-1]


def test_a_class_that_comes_back_is_a_change_like_any_other() -> None:
    x, y = stream((200, [1, 1, 0, 0]), (200, [0, 0, 1, 1]), (200, [1, 1, 0, 0]), seed=1)
    assert cuts_of(x, y) == [200, 200]


# ---- where they do not ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", [[1.0], [1, 1], [5, 1], [1] * 10, [50, 10, 5, 2, 1]], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_stationary_stream_is_not_cut_before_its_most(mix: list[float], seed: int) -> None:
    x, y = stream((4500, mix), seed=seed)
    assert cuts_of(x, y) == [2000, 2000]


def test_a_slight_change_is_none() -> None:
    x, y = stream((500, [1, 1]), (500, [1.1, 1]), seed=2, shift=0.2)
    assert cuts_of(x, y) == []


# ---- where the inputs move --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_inputs_that_move_under_the_same_labels_are_cut_near_where_they_do(seed: int) -> None:
    x, y = stream((300, [1, 1]), (300, [1, 1]), seed=seed, shift=4.0)
    (cut,) = cuts_of(x, y)
    assert abs(cut - 300) <= 8


def test_how_far_inputs_must_move_is_a_setting() -> None:
    x, y = stream((300, [1, 1]), (300, [1, 1]), shift=2.0)
    strict = StreamConfig(boundaries="automatic", window=32, min_examples=64, max_examples=2000, input_shift=20.0)
    loose = StreamConfig(boundaries="automatic", window=32, min_examples=64, max_examples=2000, input_shift=0.7)
    assert cuts_of(x, y, strict) == []
    assert len(cuts_of(x, y, loose)) >= 1


def test_bytes_and_floats_of_the_same_images_are_cut_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    dark = torch.randint(0, 100, (200, 1, 4, 4), generator=generator, dtype=torch.uint8)
    bright = torch.randint(150, 255, (200, 1, 4, 4), generator=generator, dtype=torch.uint8)
    x, y = torch.cat((dark, bright)), torch.arange(400) % 2
    (cut,) = cuts_of(x, y)
    assert abs(cut - 200) <= 8
    assert cuts_of(x.float() / 255.0, y) == [cut]


# ---- always -----------------------------------------------------------------------------------------------------


@st.composite
def any_stream(draw: st.DrawFn) -> tuple[Tensor, Tensor, StreamConfig]:
    window = draw(st.sampled_from([8, 10, 16]))
    least = window + draw(st.integers(0, 20))
    most = 2 * least + draw(st.integers(0, 60))
    mixes = st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(any)
    parts = draw(st.lists(st.tuples(st.integers(1, 120), mixes), min_size=1, max_size=6))
    x, y = stream(
        *parts,
        seed=draw(st.integers(0, 999)),
        shift=draw(st.sampled_from([0.0, 3.0])),
    )
    significance = draw(st.sampled_from([1e-6, 1e-2]))
    config = StreamConfig("automatic", window=window, min_examples=least, max_examples=most, significance=significance)
    return x, y, config


@settings(max_examples=40)
@given(any_stream(), st.integers(1, 50), st.integers(0, 999))
def test_the_cuts_are_the_same_however_the_stream_was_batched(
    made: tuple[Tensor, Tensor, StreamConfig], batch: int, seed: int
) -> None:
    x, y, config = made
    at_once = cuts_of(x, y, config)
    assert cuts_of(x, y, config, batch) == at_once
    segmenter, cuts, begin = Segmenter(config, INPUTS, seed=0), [], 0
    generator = torch.Generator().manual_seed(seed)
    while begin < len(y):
        end = begin + int(torch.randint(1, 60, (), generator=generator))
        cuts += segmenter.feed(x[begin:end], y[begin:end])
        begin = end
    assert cuts == at_once


@pytest.mark.parametrize("batch", [1, 5, 50, 1000])
def test_a_change_just_before_most_is_found_however_the_stream_was_batched(batch: int) -> None:
    config = StreamConfig("automatic", window=16, min_examples=32, max_examples=101)  # looks at 48, 56 … 96, 101
    x, y = stream((93, [1, 1, 0, 0]), (90, [0, 0, 1, 1]))
    assert cuts_of(x, y, config, batch) == [93]


@settings(max_examples=40)
@given(any_stream())
def test_no_episode_is_shorter_than_least_or_longer_than_most(made: tuple[Tensor, Tensor, StreamConfig]) -> None:
    x, y, config = made
    cuts = cuts_of(x, y, config)
    assert all(config.min_examples <= cut <= config.max_examples for cut in cuts)
    assert len(y) - sum(cuts) < config.max_examples


@settings(max_examples=30)
@given(any_stream(), st.integers(0, 400))
def test_a_restored_segmenter_cuts_as_the_one_that_was_saved(
    made: tuple[Tensor, Tensor, StreamConfig], where: int
) -> None:
    x, y, config = made
    first = Segmenter(config, INPUTS, seed=0)
    cuts = first.feed(x[:where], y[:where])
    second = Segmenter(config, INPUTS, seed=0)
    second.restore(first.labels.clone(), first.features.clone())
    rest = second.feed(x[where:], y[where:])
    assert first.feed(x[where:], y[where:]) == rest
    assert cuts + rest == cuts_of(x, y, config)


def test_a_cleared_segmenter_begins_anew() -> None:
    x, y = stream((200, [1, 1, 0, 0]), (300, [0, 0, 1, 1]))
    segmenter = Segmenter(CONFIG, INPUTS, seed=0)
    segmenter.feed(x[:200], y[:200])
    segmenter.clear()
    assert segmenter.feed(x[200:], y[200:]) == [] and len(segmenter.labels) == 300


def test_a_forgotten_class_leaves_no_trace() -> None:
    x, y = stream((150, [1, 1, 1, 0]), (300, [0, 0, 1, 1]))
    segmenter = Segmenter(CONFIG, INPUTS, seed=0)
    segmenter.feed(x[:150], y[:150])
    segmenter.forget(2)
    others = y[:150] != 2
    without = Segmenter(CONFIG, INPUTS, seed=0)
    without.feed(x[:150][others], y[:150][others])
    assert torch.equal(segmenter.labels, without.labels) and torch.equal(segmenter.features, without.features)
    assert segmenter.feed(x[150:], y[150:]) == without.feed(x[150:], y[150:])


# ---- a learner that finds its own episodes ----------------------------------------------------------------------


def finder(**options: Any) -> Learner:
    return Learner(mlp(boundaries="automatic", window=16, min_examples=32, max_examples=200, phases=1, **options))


def two_episodes() -> tuple[Tensor, list[int]]:
    first, second = examples((0, 1), each=40, seed=1), examples((2, 3), each=40, seed=2)
    return torch.cat((first[0], second[0])), [int(label) for label in (*first[1], *second[1])]


@pytest.mark.parametrize("batch", [1, 7, 160])
def test_a_learner_learns_each_episode_as_soon_as_it_is_found(batch: int) -> None:
    learner, reported = (
        finder(),
        Learner(mlp(phases=1, boundaries="automatic", window=16, min_examples=32, max_examples=200)),
    )
    x, y = two_episodes()
    reports = []
    for begin in range(0, len(y), batch):
        reports += learner.observe(x[begin : begin + batch], y[begin : begin + batch])
    assert [(report.episode, report.examples, set(report.classes)) for report in reports] == [(1, 80, {0, 1})]
    assert learner.inspect().pending_examples == 80
    assert set(learner.inspect().classes) == {0, 1}
    report = learner.end_episode()
    assert (report.examples, set(report.classes)) == (80, {2, 3})
    reported.learn_episode(x[:80], y[:80])
    reported.learn_episode(x[80:], y[80:])
    for one, other in zip(learner.network.layers, reported.network.layers, strict=True):
        assert torch.equal(one.weight, other.weight)


def test_a_cancelled_found_episode_is_learned_later() -> None:
    x, y = two_episodes()
    learner, undisturbed = finder(), finder()
    undisturbed.observe(x, y)
    with pytest.raises(Cancelled):
        learner.observe(x, y, cancel=CancelAfter(2))
    assert learner.inspect().phases_done == 0 and learner.inspect().pending_examples == 80
    assert [report.episode for report in learner.learn_found()] == [1]
    check_same(learner, undisturbed)
    assert learner.learn_found() == []


def test_a_found_episode_without_a_pair_joins_the_next() -> None:
    learner = finder(stm_capacity=400)
    generator = torch.Generator().manual_seed(0)
    lone = torch.rand(200, 6, generator=generator)
    reports = learner.observe(lone, list(range(100, 300)))  # every example a class of its own
    assert reports == [] and sum(learner.found) >= 32
    reports = learner.observe(*examples((0, 1), each=150, seed=1))
    assert reports and 100 in reports[0].classes and {0, 1} & set(reports[0].classes)


def test_given_boundaries_are_never_found() -> None:
    learner = Learner(mlp(window=16, min_examples=32, max_examples=200))
    x, y = two_episodes()
    assert learner.observe(x, y) == [] and learner.inspect().pending_examples == 160
    assert learner.end_episode().examples == 160
