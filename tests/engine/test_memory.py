"""Both memories: packing, shares and budgets, herding, balanced replay, purge."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharp_engine.memory.long_term import ClassMemory, LongTermMemory, remember
from sharp_engine.memory.packing import is_sound, pack, unpack
from sharp_engine.memory.short_term import Replay, ShortTermMemory, StoredClass, select_by_herding
from tests.engine.made import IMAGE, convnet, examples, linear, mlp, trained

# ---- packing ----------------------------------------------------------------------------------------------------

SHAPES = [(5,), (3, 2, 2), (1, 1, 1), (7, 3, 5), (9,)]


def random_activations(data: st.DataObject, shape: tuple[int, ...]) -> Tensor:
    """Anything a ReLU or an input can give: many zeros, large and tiny values, negative ones with raw replay."""
    seed, count = data.draw(st.integers(0, 10**6)), data.draw(st.integers(0, 4))
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, *shape, generator=generator) * 10.0 ** data.draw(st.integers(-6, 6))
    return h if data.draw(st.booleans()) else torch.relu(h)


@given(st.data(), st.sampled_from(SHAPES), st.sampled_from([2, 4, 8]), st.booleans())
def test_packing_loses_at_most_half_a_level(
    data: st.DataObject, shape: tuple[int, ...], bits: int, sparse: bool
) -> None:
    h = random_activations(data, shape)
    useful = torch.tensor(data.draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0])))
    back = unpack(pack(h, bits, sparse, useful), shape)
    assert back.shape == h.shape and back.dtype == torch.float32
    if sparse:
        assert not bool(back[:, ~useful].any())
        h, back = h[:, useful], back[:, useful]
    for one, other in zip(h, back, strict=True):
        if one.numel():
            low = min(float(one.min()), 0.0) if sparse else float(one.min())
            span, half_a_level = float(one.max()) - low, 0.5 / (2**bits - 1)
            bound = torch.full_like(one, span * half_a_level)
            if bits < 8:  # levels are squares: finer near the least value
                root = ((one - low) / max(span, 1e-30)).clamp(0.0, 1.0).sqrt()
                bound = span * ((root + half_a_level) ** 2 - root**2)
            assert bool(((one - other).abs() <= bound + 1e-6 * one.abs().max()).all())


@given(
    st.floats(-(2.0**100), 2.0**100, width=32),
    st.sampled_from(SHAPES),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 3),
)
def test_a_constant_activation_survives_exactly(value: float, shape: tuple[int, ...], bits: int, count: int) -> None:
    h = torch.full((count, *shape), value)
    back = unpack(pack(h, bits, False, torch.ones(shape[0], dtype=torch.bool)), shape)
    assert torch.equal(back, h)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("value", [0.0, 0.1, 3.7, 1e-30, 1e30, -0.1])
def test_a_constant_activation_survives_sparse_packing(value: float, bits: int) -> None:
    h = torch.full((2, 3, 2, 2), value)
    back = unpack(pack(h, bits, True, torch.ones(3, dtype=torch.bool)), (3, 2, 2))
    assert torch.equal(back, h)


@given(st.data(), st.sampled_from(SHAPES), st.booleans())
def test_zeros_of_a_relu_stay_zeros(data: st.DataObject, shape: tuple[int, ...], sparse: bool) -> None:
    h = torch.relu(random_activations(data, shape))
    back = unpack(pack(h, 8, sparse, torch.ones(shape[0], dtype=torch.bool)), shape)
    with_zero = (h == 0).flatten(1).any(1)  # without a zero the least value is another
    assert not bool(back[with_zero][h[with_zero] == 0].any())


@given(st.data(), st.sampled_from([2, 4, 8]), st.booleans())
def test_what_is_packed_is_sound_and_a_piece_of_another_size_is_not(
    data: st.DataObject, bits: int, sparse: bool
) -> None:
    shape = data.draw(st.sampled_from([(3, 2, 2), (2, 3, 3), (5,), (1, 1, 1)]))
    count = data.draw(st.integers(1, 4))
    useful = torch.tensor(data.draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0])))
    h = torch.relu(torch.rand(count, *shape, generator=torch.Generator().manual_seed(count)) - 0.4)
    packed = pack(h, bits, sparse, useful)
    values = int(packed.channels.sum()) * h[0, 0].numel()
    assert is_sound(packed, values)
    # One piece takes a byte from the next, or one too many comes: every size must be the right one.
    longer = replace(packed, data=torch.cat((packed.data, packed.data.new_zeros(1))), offsets=packed.offsets.clone())
    longer.offsets[data.draw(st.integers(1, count)) :] += 1
    assert not is_sound(longer, values)
    if packed.nbytes:
        shorter = replace(packed, data=packed.data[:-1], offsets=packed.offsets.clone())
        shorter.offsets[data.draw(st.integers(1, count)) :] -= 1
        if bool((shorter.sizes >= 0).all()):
            assert not is_sound(shorter, values)


@pytest.mark.parametrize(("bits", "bytes_of_each"), [(8, 12), (4, 6), (2, 3)])
def test_dense_packing_takes_bits_times_values(bits: int, bytes_of_each: int) -> None:
    packed = pack(torch.rand(5, 3, 2, 2), bits, False, torch.zeros(3, dtype=torch.bool))
    assert packed.sizes.tolist() == [bytes_of_each] * 5 and packed.nbytes == 5 * bytes_of_each and len(packed) == 5


def test_sparse_packing_pays_one_bit_for_a_zero_and_nothing_for_a_useless_channel() -> None:
    h = torch.zeros(1, 4, 4, 4)
    h[0, 0, 0, :3] = torch.tensor([1.0, 2.0, 3.0])
    h[0, 3] = 5.0
    useful = torch.tensor([True, True, False, False])
    assert pack(h, 8, True, useful).nbytes == 32 // 8 + 3
    assert pack(h, 4, True, useful).nbytes == 32 // 8 + 2
    assert pack(h, 8, False, useful).nbytes == 64


@given(st.data(), st.sampled_from([2, 4, 8]), st.booleans())
def test_taking_some_activations_is_unpacking_some(data: st.DataObject, bits: int, sparse: bool) -> None:
    h = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    packed = pack(torch.relu(h - 0.4), bits, sparse, torch.tensor([True, False, True]))
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, 5), max_size=6)), dtype=torch.int64)
    some = packed.take(chosen)
    assert torch.equal(unpack(some, (3, 2, 2)), unpack(packed, (3, 2, 2))[chosen])
    assert some.nbytes == int(packed.sizes[chosen].sum()) == int(some.offsets[-1])
    assert some.overhead > 0


# ---- shares and budget ------------------------------------------------------------------------------------------


def stored(class_id: int, episode: int, count: int, values: int = 4) -> StoredClass:
    """A class of `count` activations of one byte per value; the first value of each is its number."""
    h = torch.arange(count, dtype=torch.float32)[:, None].repeat(1, values)
    h[:, 1:] = 255.0
    return StoredClass(class_id, episode, pack(h, 8, False, torch.ones(values, dtype=torch.bool)))


def kept(memory: ShortTermMemory) -> dict[int, int]:
    return {s.class_id: len(s.packed) for s in memory.classes}


def memory_of(capacity: int, *classes: StoredClass, share: Any = "even") -> ShortTermMemory:
    return ShortTermMemory((4,), capacity, share, classes)


def test_capacity_is_shared_evenly_and_the_rest_goes_to_the_newest() -> None:
    memory = memory_of(11, stored(0, 1, 9), stored(1, 1, 9), stored(2, 2, 9), stored(3, 2, 9))
    assert kept(memory.purge(2, 2)) == {0: 3, 1: 2, 2: 3, 3: 3}
    assert memory.purge(2, 2).nbytes == memory.budget == 44


def test_what_a_small_class_does_not_need_others_get() -> None:
    memory = memory_of(12, stored(0, 1, 2), stored(1, 1, 9), stored(2, 1, 9))
    assert kept(memory.purge(1, 1)) == {0: 2, 1: 5, 2: 5}


def test_fading_shares_fall_with_the_age_of_the_episode() -> None:
    classes = [stored(i, episode, 99) for i, episode in enumerate((1, 2, 3, 4))]
    # Weights 16, 5, 2 and again 2.
    assert kept(memory_of(50, *classes, share="fading").purge(4, 4)) == pytest.approx({0: 4, 1: 4, 2: 10, 3: 32}, abs=1)


def test_the_best_examples_are_kept_first() -> None:
    memory = memory_of(6, stored(0, 1, 9), stored(1, 1, 9)).purge(1, 1)
    for one in memory.classes:
        assert memory.activations(one)[:, 0].round().tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_purge_keeps_the_newest_m_episodes(m: int) -> None:
    memory = memory_of(99, *(stored(i, i + 1, 3) for i in range(4)))
    assert [s.episode for s in memory.purge(4, m).classes] == list(range(5 - m, 5))


@pytest.mark.parametrize("share", ["even", "fading"])
def test_a_memory_of_no_episodes_holds_nothing_to_replay(share: str) -> None:
    assert trained(mlp(replayed_episodes=0, stm_share=share)).stm.classes == ()


def test_fading_shares_keep_older_classes_to_replay_and_leave_their_memories_alone() -> None:
    learner = trained(mlp(replayed_episodes=1, stm_share="fading", stm_capacity=40), ((0, 1), (2, 3), (4, 5)))
    assert [s.episode for s in learner.stm.classes] == [1, 1, 2, 2, 3, 3]
    before = {c.class_id: c.vectors for c in learner.ltm.classes}
    learner.learn_episode(*examples((6, 7), seed=6))
    for memory in learner.ltm.classes:
        if memory.episode <= 2:
            assert torch.equal(memory.vectors, before[memory.class_id])


def test_an_arriving_episode_has_the_budget_to_itself_and_replaces_its_classes() -> None:
    memory = memory_of(8, stored(0, 1, 4), stored(1, 1, 4)).admit([stored(1, 2, 9), stored(2, 2, 9)])
    assert [(s.class_id, s.episode, len(s.packed)) for s in memory.classes] == [(0, 1, 4), (1, 2, 4), (2, 2, 4)]
    assert memory.examples == 12


def test_every_arriving_class_keeps_an_example_for_long_term_memory() -> None:
    memory = memory_of(2).admit([stored(i, 1, 5) for i in range(5)])
    assert kept(memory) == {i: 1 for i in range(5)}
    assert memory.purge(1, 1).nbytes <= memory.budget


@given(st.data())
def test_purging_never_exceeds_the_budget_and_wastes_no_room(data: st.DataObject) -> None:
    sizes = st.lists(st.integers(0, 12), min_size=1, max_size=6)
    count_of_zeros = data.draw(st.lists(sizes, min_size=1, max_size=5))
    classes = []
    for i, zeros in enumerate(count_of_zeros):
        h = torch.ones(len(zeros), 16)
        for row, n in zip(h, zeros, strict=True):
            row[:n] = 0.0
        packed = pack(h, data.draw(st.sampled_from([4, 8])), True, torch.ones(16, dtype=torch.bool))
        classes.append(StoredClass(i, data.draw(st.integers(1, 3)), packed))
    share: Any = data.draw(st.sampled_from(["even", "fading"]))
    memory = ShortTermMemory((16,), data.draw(st.integers(1, 12)), share, tuple(classes))
    after = memory.purge(3, 3)
    assert after.nbytes <= after.budget
    room = after.budget - after.nbytes
    for one in classes:
        taken = kept(after).get(one.class_id, 0)
        assert taken == len(one.packed) or int(one.packed.sizes[taken]) > room


def test_a_learners_memories_hold_what_the_settings_say() -> None:
    learner = trained(mlp(stm_capacity=10, ltm_per_class=3, replayed_episodes=2), ((0, 1), (2, 3), (4, 5)))
    assert {learner.labels.label(s.class_id): len(s.packed) for s in learner.stm.classes} == pytest.approx(
        {2: 2, 3: 2, 4: 3, 5: 3}, abs=1
    )
    assert sum(len(s.packed) for s in learner.stm.classes) == 10
    # The oldest were written again, for the last time, from the two or three examples that were left of them.
    assert [len(c.vectors) for c in learner.ltm.classes] == [2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("bits", "factor"), [(8, 1), (4, 2), (2, 4)])
def test_fewer_bits_hold_more_examples_in_the_same_bytes(bits: int, factor: int) -> None:
    layers = (linear(16), linear(12), linear(10))
    learner = trained(mlp(stm_capacity=6, stm_bits=bits, layers=layers), ((0, 1),), each=30)
    assert learner.inspect().stm_examples == 6 * factor
    assert learner.inspect().stm_bytes == learner.inspect().stm_budget_bytes == 6 * 16


def test_sparse_memory_holds_more_examples_and_no_channel_that_replay_cannot_use() -> None:
    dense = trained(convnet(stm_capacity=6), ((0, 1),), IMAGE, each=40)
    sparse = trained(convnet(stm_capacity=6, stm_sparse=True, stm_bits=4), ((0, 1),), IMAGE, each=40)
    assert sparse.inspect().stm_examples >= 2 * dense.inspect().stm_examples
    assert sparse.inspect().stm_bytes <= sparse.inspect().stm_budget_bytes == dense.inspect().stm_budget_bytes
    useful = sparse.network.cut_ranks >= 2
    for one in sparse.stm.classes:
        assert torch.equal(one.packed.channels, useful)
        assert not bool(sparse.stm.activations(one)[:, ~useful].any())


def test_short_term_memory_never_holds_an_input_behind_a_cut() -> None:
    learner = trained(convnet(), ((0, 1),), IMAGE)
    assert learner.stm.shape == (5, 2, 2)
    assert trained(convnet(cut=0), ((0, 1),), IMAGE).stm.shape == IMAGE


# ---- herding ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
def test_herding_takes_at_each_step_the_example_that_brings_the_mean_closest(seed: int, n: int, units: int) -> None:
    z = torch.rand(n, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    order = select_by_herding(z, n).tolist()
    assert sorted(order) == list(range(n))
    rows = z / z.norm(dim=1, keepdim=True)
    mean = rows.mean(0)
    for step in range(n):
        distances = {}
        for candidate in set(range(n)) - set(order[:step]):
            chosen = [*order[:step], candidate]
            distances[candidate] = float(((mean - rows[chosen].mean(0)) ** 2).sum())
        assert distances[order[step]] <= min(distances.values()) + 1e-12


def test_herding_is_near_the_best_of_all_subsets() -> None:
    z = torch.rand(8, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows = z / z.norm(dim=1, keepdim=True)

    def error(chosen: tuple[int, ...]) -> float:
        return float((rows.mean(0) - rows[list(chosen)].mean(0)).norm())

    every = sorted(error(subset) for subset in itertools.combinations(range(8), 4))
    assert error(tuple(select_by_herding(z, 4).tolist())) <= every[len(every) // 4]


def test_herding_gives_no_more_than_there_is_and_bears_zero_vectors() -> None:
    assert len(select_by_herding(torch.rand(3, 2), 10)) == 3
    assert sorted(select_by_herding(torch.zeros(4, 2), 3).tolist()) == [0, 1, 2]
    assert len(select_by_herding(torch.zeros(0, 2), 3)) == 0


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
    empty = pack(torch.zeros(0, 3), 8, False, torch.ones(3, dtype=torch.bool))
    assert len(empty) == 0 and empty.nbytes == 0
    assert unpack(empty, (3,)).shape == (0, 3)
