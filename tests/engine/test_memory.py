"""Both memories: packing, shares and budgets, balanced replay, purge."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharp_engine.memory.long_term import ClassMemory, LongTermMemory, remember
from sharp_engine.memory.packing import pack, unpack
from sharp_engine.memory.short_term import Replay, ShortTermMemory, StoredClass
from tests.engine.fixtures import IMAGE, convnet, linear, mlp, trained

# ---- packing ----------------------------------------------------------------------------------------------------

SHAPES = [(5,), (3, 2, 2), (1, 1, 1), (7, 3, 5), (9,)]


def random_activations(data: st.DataObject, shape: tuple[int, ...]) -> Tensor:
    """Anything a ReLU or an input can give: many zeros, large and tiny values, negative ones with raw replay."""
    seed, count = data.draw(st.integers(0, 10**6)), data.draw(st.integers(0, 4))
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, *shape, generator=generator) * 10.0 ** data.draw(st.integers(-6, 6))
    return h if data.draw(st.booleans()) else torch.relu(h)


@given(st.data(), st.sampled_from(SHAPES))
def test_packing_loses_at_most_half_a_level(data: st.DataObject, shape: tuple[int, ...]) -> None:
    h = random_activations(data, shape)
    back = unpack(pack(h), shape)
    assert back.shape == h.shape and back.dtype == torch.float32
    for one, other in zip(h, back, strict=True):
        bound = float(one.max() - one.min()) * 0.5 / 255
        assert bool(((one - other).abs() <= bound + 1e-6 * one.abs().max()).all())


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.sampled_from(SHAPES), st.integers(1, 3))
def test_a_constant_activation_survives_exactly(value: float, shape: tuple[int, ...], count: int) -> None:
    h = torch.full((count, *shape), value)
    assert torch.equal(unpack(pack(h), shape), h)


@given(st.data(), st.sampled_from(SHAPES))
def test_zeros_of_a_relu_stay_zeros(data: st.DataObject, shape: tuple[int, ...]) -> None:
    h = torch.relu(random_activations(data, shape))
    back = unpack(pack(h), shape)
    with_zero = (h == 0).flatten(1).any(1)  # without a zero the least value is another
    assert not bool(back[with_zero][h[with_zero] == 0].any())


def test_packing_takes_a_byte_per_value_and_two_numbers_per_activation() -> None:
    packed = pack(torch.rand(5, 3, 2, 2))
    assert len(packed) == 5 and packed.nbytes == 5 * 12 and packed.overhead == 5 * 8


@given(st.data())
def test_taking_some_activations_is_unpacking_some(data: st.DataObject) -> None:
    h = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    packed = pack(torch.relu(h - 0.4))
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, 5), max_size=6)), dtype=torch.int64)
    some = packed.take(chosen)
    assert torch.equal(unpack(some, (3, 2, 2)), unpack(packed, (3, 2, 2))[chosen])
    assert some.nbytes == 12 * len(chosen)


# ---- shares and budget ------------------------------------------------------------------------------------------


def stored(class_id: int, episode: int, count: int, values: int = 4) -> StoredClass:
    """A class of `count` activations of one byte per value; the first value of each is its number."""
    h = torch.arange(count, dtype=torch.float32)[:, None].repeat(1, values)
    h[:, 1:] = 255.0
    return StoredClass(class_id, episode, pack(h))


def kept(memory: ShortTermMemory) -> dict[int, int]:
    return {s.class_id: len(s.packed) for s in memory.classes}


def memory_of(capacity: int, *classes: StoredClass) -> ShortTermMemory:
    return ShortTermMemory((4,), capacity, classes)


def test_capacity_is_shared_evenly_and_the_rest_goes_to_the_newest() -> None:
    memory = memory_of(11, stored(0, 1, 9), stored(1, 1, 9), stored(2, 2, 9), stored(3, 2, 9))
    assert kept(memory.purge(2, 2)) == {0: 3, 1: 2, 2: 3, 3: 3}
    assert memory.purge(2, 2).nbytes == memory.budget == 44


def test_what_a_small_class_does_not_need_others_get() -> None:
    memory = memory_of(12, stored(0, 1, 2), stored(1, 1, 9), stored(2, 1, 9))
    assert kept(memory.purge(1, 1)) == {0: 2, 1: 5, 2: 5}


def test_the_best_examples_are_kept_first() -> None:
    memory = memory_of(6, stored(0, 1, 9), stored(1, 1, 9)).purge(1, 1)
    for one in memory.classes:
        assert memory.activations(one)[:, 0].round().tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_purge_keeps_the_newest_m_episodes(m: int) -> None:
    memory = memory_of(99, *(stored(i, i + 1, 3) for i in range(4)))
    assert [s.episode for s in memory.purge(4, m).classes] == list(range(5 - m, 5))


def test_a_memory_of_no_episodes_holds_nothing_to_replay() -> None:
    assert trained(mlp(replayed_episodes=0)).stm.classes == ()


def test_an_arriving_episode_has_the_budget_to_itself_and_replaces_its_classes() -> None:
    memory = memory_of(8, stored(0, 1, 4), stored(1, 1, 4)).admit([stored(1, 2, 9), stored(2, 2, 9)])
    assert [(s.class_id, s.episode, len(s.packed)) for s in memory.classes] == [(0, 1, 4), (1, 2, 4), (2, 2, 4)]
    assert memory.examples == 12


def test_every_arriving_class_keeps_an_example_for_long_term_memory() -> None:
    memory = memory_of(2).admit([stored(i, 1, 5) for i in range(5)])
    assert kept(memory) == {i: 1 for i in range(5)}
    assert memory.purge(1, 1).nbytes <= memory.budget


@given(st.data())
def test_purging_never_exceeds_the_budget_wastes_no_room_and_shares_evenly(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    classes = [stored(i, data.draw(st.integers(1, 3)), count) for i, count in enumerate(counts)]
    memory = memory_of(data.draw(st.integers(1, 12)), *classes)
    after = memory.purge(3, 3)
    assert after.nbytes <= after.budget
    assert after.examples == min(memory.capacity, sum(counts))
    taken = [kept(after).get(i, 0) for i in range(len(counts))]
    unsatisfied = [n for n, count in zip(taken, counts, strict=True) if n < count]
    assert not unsatisfied or max(taken) - min(unsatisfied) <= 1


def test_a_learners_memories_hold_what_the_settings_say() -> None:
    learner = trained(mlp(stm_capacity=10, ltm_per_class=3, replayed_episodes=2), ((0, 1), (2, 3), (4, 5)))
    assert {learner.labels.label(s.class_id): len(s.packed) for s in learner.stm.classes} == pytest.approx(
        {2: 2, 3: 2, 4: 3, 5: 3}, abs=1
    )
    assert sum(len(s.packed) for s in learner.stm.classes) == 10
    # The oldest were written again, for the last time, from the two or three examples that were left of them.
    assert [len(c.vectors) for c in learner.ltm.classes] == [2, 2, 3, 3, 3, 3]


def test_a_byte_per_value_fills_the_budget() -> None:
    seen = trained(mlp(stm_capacity=6, layers=(linear(16), linear(12), linear(10))), ((0, 1),), each=30).inspect()
    assert seen.stm_examples == 6 and seen.stm_bytes == seen.stm_budget_bytes == 6 * 16


def test_short_term_memory_never_holds_an_input_behind_a_cut() -> None:
    learner = trained(convnet(), ((0, 1),), IMAGE)
    assert learner.stm.shape == (5, 2, 2)
    assert trained(convnet(cut=0), ((0, 1),), IMAGE).stm.shape == IMAGE


# ---- replay -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 40), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_replay_draws_every_class_equally_often(seed: int, n: int, counts: list[int]) -> None:
    memory = memory_of(999, *(stored(i, 1, count) for i, count in enumerate(counts)))
    replay = Replay(memory, torch.device("cpu"))
    drawn = replay.draw(n, torch.Generator().manual_seed(seed))
    assert len(drawn) == n and int(drawn.min()) >= 0 and int(drawn.max()) < sum(counts)
    of_class = Counter(replay.y[drawn].tolist())
    assert max(of_class.values()) - min(of_class.get(i, 0) for i in range(len(counts))) <= 1


def test_replay_draws_every_example_of_a_class_sooner_or_later() -> None:
    replay = Replay(memory_of(999, stored(0, 1, 3), stored(1, 1, 50)), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(torch.cat([replay.draw(20, generator) for _ in range(60)]).tolist())
    assert set(drawn) == set(range(53))
    assert all(drawn[i] == pytest.approx(200, rel=0.25) for i in range(3))


def test_replay_gives_what_is_stored() -> None:
    memory = memory_of(999, stored(5, 1, 2), stored(7, 1, 3))
    replay = Replay(memory, torch.device("cpu"))
    assert replay.y.tolist() == [5, 5, 7, 7, 7]
    assert torch.equal(replay.h, torch.cat([memory.activations(s) for s in memory.classes]))


# ---- long-term memory -------------------------------------------------------------------------------------------


def remembered(class_id: int, episode: int) -> ClassMemory:
    return remember(class_id, episode, torch.rand(3, 4), torch.tensor([True, False, True, True]))


def test_memories_are_unit_vectors_over_their_mask() -> None:
    z = torch.tensor([[3.0, 9.0, 4.0, 0.0], [0.0, 5.0, 0.0, 0.0]])
    memory = remember(1, 2, z, torch.tensor([True, False, True, True]))
    torch.testing.assert_close(memory.vectors, torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0]]))


def test_new_memories_of_a_class_replace_its_old_ones() -> None:
    memory = LongTermMemory().put([remembered(0, 1), remembered(1, 1)]).put([remembered(0, 2), remembered(2, 2)])
    assert [(c.class_id, c.episode) for c in memory.classes] == [(1, 1), (0, 2), (2, 2)]
    assert memory.entries == 9 and memory.nbytes == 3 * (3 * 3 * 4 + 4)
    assert [c.class_id for c in memory.forget(0).classes] == [1, 2]
    assert len(memory.classes) == 3  # a value: forgetting made another


def test_packed_values_know_their_length() -> None:
    empty = pack(torch.zeros(0, 3))
    assert len(empty) == 0 and empty.nbytes == 0
    assert unpack(empty, (3,)).shape == (0, 3)
