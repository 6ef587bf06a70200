"""A check that cannot fail proves nothing: for each invariant, engines that are broken on purpose, and are caught.

Every mutation runs under the one check it must be caught by, and the same run passes that check unbroken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from sharp_engine import (
    Cancelled,
    Learner,
    LearnerConfig,
    checks,
    learner,
    snapshot,
)
from sharp_engine.checks import (
    InvariantError,
    check_budgets,
    check_density,
    check_frozen,
    check_left_out_units,
    check_masks,
    check_nothing_forgotten,
    check_path_property,
    check_resume,
)
from sharp_engine.config import FanIn
from sharp_engine.memory import long_term as ltm
from sharp_engine.memory.short_term import ShortTermMemory, StoredClass
from sharp_engine.network import rewiring
from sharp_engine.network import state as network
from sharp_engine.network.compact import CompactNetwork
from sharp_engine.network.state import Network
from sharp_engine.prediction import vote as predictor
from sharp_engine.training import episode
from tests.engine.made import IMAGE, VECTOR, CancelAfter, change, convnet, examples, mlp, trained
from tests.engine.test_reference import run_both
from tests.engine.watched import Check, learn_watched

Patch = pytest.MonkeyPatch
SEQUENCE = ((0, 1), (2, 3), (4, 5), (1, 6), (7, 3))
CONFIG = mlp(phases=3, tau_min=0.7)


# ---- 1: path property -------------------------------------------------------------------------------------------


def skip_the_drop_step(patch: Patch) -> None:
    patch.setattr(rewiring, "drop", lambda network: [0] * len(network.layers))


def drop_in_the_first_half_only(patch: Patch) -> None:
    drop = rewiring.drop

    def half(network: Network) -> list[int]:
        gone = drop(Network(network.layers[:2], network.cut, network.shapes[:3]))
        return gone + [0] * (len(network.layers) - 2)

    patch.setattr(rewiring, "drop", half)


def grow_into_active_units(patch: Patch) -> None:
    def grow(network: Network, dropped: list[int], generator: torch.Generator) -> None:
        for layer, lost in zip(network.layers, dropped, strict=True):
            free = torch.nonzero(~layer.mask.view(-1)).squeeze(1)
            layer.mask.view(-1)[free[torch.randperm(len(free), generator=generator)[:lost]]] = True
            layer.shortfall += max(0, lost - len(free))

    patch.setattr(rewiring, "grow", grow)


def promote_only_the_last_layer(patch: Patch) -> None:
    patch.setattr(
        episode, "promote", lambda network: rewiring.promote(Network(network.layers[-1:], 0, network.shapes[-2:]))
    )


# ---- 2: density -------------------------------------------------------------------------------------------------


def forget_the_shortfall(patch: Patch) -> None:
    grow = rewiring.grow

    def careless(network: Network, dropped: list[int], generator: torch.Generator) -> None:
        grow(network, dropped, generator)
        for layer in network.layers:
            layer.shortfall = 0

    patch.setattr(rewiring, "grow", careless)


def skip_the_grow_step(patch: Patch) -> None:
    patch.setattr(rewiring, "grow", lambda network, dropped, generator: None)


def leave_the_weights_of_dropped_connections(patch: Patch) -> None:
    def drop(network: Network) -> list[int]:
        weights = [layer.weight.clone() for layer in network.layers]
        gone = unbroken(network)
        for layer, weight in zip(network.layers, weights, strict=True):
            layer.weight.copy_(weight)
        return gone

    unbroken = rewiring.drop
    patch.setattr(rewiring, "drop", drop)


# ---- 3: frozen --------------------------------------------------------------------------------------------------


def thaw_one_unit(patch: Patch) -> None:
    def select(ranks: Tensor, *arguments: Any) -> Tensor:
        ranks = unbroken(ranks, *arguments)
        ranks[ranks.argmax()] = 1
        return ranks

    unbroken = rewiring.select
    patch.setattr(rewiring, "select", select)


def train_frozen_units_too(patch: Patch) -> None:
    def train(trainer: episode.EpisodeTrainer, network: Network, *arguments: Any) -> float:
        limits = [layer.freezes_above for layer in network.layers]
        for layer in network.layers:
            layer.freezes_above = 10**6
        loss = unbroken(trainer, network, *arguments)
        for layer, limit in zip(network.layers, limits, strict=True):
            layer.freezes_above = limit
        return loss

    unbroken = episode.EpisodeTrainer.train
    patch.setattr(episode.EpisodeTrainer, "train", train)


def let_biases_of_frozen_units_drift(patch: Patch) -> None:
    def train(trainer: episode.EpisodeTrainer, network: Network, *arguments: Any) -> float:
        loss = unbroken(trainer, network, *arguments)
        for layer in network.layers:
            layer.bias *= 1.0 + 1e-6
        return loss

    unbroken = episode.EpisodeTrainer.train
    patch.setattr(episode.EpisodeTrainer, "train", train)


def reinitialise_every_unit(patch: Patch) -> None:
    def reinitialise(network: Network, fan_in: FanIn, generator: torch.Generator) -> None:
        ranks = [layer.ranks for layer in network.layers]
        for layer in network.layers:
            layer.ranks = torch.zeros_like(layer.ranks)
        unbroken(network, fan_in, generator)
        for layer, kept in zip(network.layers, ranks, strict=True):
            layer.ranks = kept

    unbroken = rewiring.reinitialise_idle
    patch.setattr(episode, "reinitialise_idle", reinitialise)


# ---- 4: nothing is forgotten ------------------------------------------------------------------------------------


def remember_under_every_unit(patch: Patch) -> None:
    def remember(class_id: int, number: int, z: Tensor, mask: Tensor) -> ltm.ClassMemory:
        return ltm.remember(class_id, number, z, torch.ones_like(mask))

    patch.setattr(episode, "remember", remember)


def remember_under_the_mask_of_the_newest_episode(patch: Patch) -> None:
    """The mask does not take the age of a class into account."""

    def write(*arguments: Any) -> ltm.LongTermMemory:
        ranks = arguments[2].layers[-1].ranks
        patch.setattr(
            episode, "remember", lambda class_id, number, z, mask: ltm.remember(class_id, number, z, ranks >= 2)
        )
        return unbroken(*arguments)

    unbroken = episode._write
    patch.setattr(episode, "_write", write)


def freeze_one_episode_late(patch: Patch) -> None:
    def build(architecture: Any, density: float, fan_in: FanIn, m: int, *arguments: Any) -> Network:
        return network.build(architecture, density, fan_in, m + 1, *arguments)

    patch.setattr(learner, "build", build)


def write_memories_of_a_class_again_when_it_has_left(patch: Patch) -> None:
    def put(memory: ltm.LongTermMemory, memories: Any) -> ltm.LongTermMemory:
        after = unbroken(memory, memories)
        oldest = after.classes[0]
        moved = dataclasses.replace(oldest, vectors=oldest.vectors + 1e-3)
        return dataclasses.replace(after, classes=(moved, *after.classes[1:]))

    unbroken = ltm.LongTermMemory.put
    patch.setattr(ltm.LongTermMemory, "put", put)


# ---- 5: budgets -------------------------------------------------------------------------------------------------


def purge_nothing(patch: Patch) -> None:
    patch.setattr(ShortTermMemory, "purge", lambda memory, episode, m: memory)


def purge_one_episode_late(patch: Patch) -> None:
    unbroken = ShortTermMemory.purge
    patch.setattr(ShortTermMemory, "purge", lambda memory, episode, m: unbroken(memory, episode, m + 1))


def purge_by_age_only(patch: Patch) -> None:
    def purge(memory: ShortTermMemory, number: int, m: int) -> ShortTermMemory:
        return dataclasses.replace(memory, classes=tuple(s for s in memory.classes if s.episode > number - m))

    patch.setattr(ShortTermMemory, "purge", purge)


def hold_a_class_under_both_its_episodes(patch: Patch) -> None:
    def admit(memory: ShortTermMemory, arrivals: Sequence[StoredClass]) -> ShortTermMemory:
        after = unbroken(memory, arrivals)
        return dataclasses.replace(after, classes=(*memory.classes, *after.classes))

    unbroken = ShortTermMemory.admit
    patch.setattr(ShortTermMemory, "admit", admit)


def remember_twice_as_much(patch: Patch) -> None:
    def remember(class_id: int, number: int, z: Tensor, mask: Tensor) -> ltm.ClassMemory:
        return ltm.remember(class_id, number, torch.cat((z, z)), mask)

    patch.setattr(episode, "remember", remember)


# ---- 7: what is left out ----------------------------------------------------------------------------------------


def keep_out_an_active_unit(patch: Patch) -> None:
    def without_one(full: Network) -> CompactNetwork:
        kept = [layer.ranks >= 1 for layer in full.layers]
        if bool(kept[0].any()):
            kept[0][int(full.layers[0].ranks.argmax())] = False
        return CompactNetwork(full, kept)

    for module in (checks, episode):
        patch.setattr(module, "active_subnetwork", without_one)


def keep_only_output_units_and_what_they_see_directly(patch: Patch) -> None:
    def direct(full: Network, output_units: Tensor) -> CompactNetwork:
        kept = [layer.ranks > 3 for layer in full.layers]
        return CompactNetwork(full, [*kept[:-1], output_units])

    for module in (checks, predictor):
        patch.setattr(module, "needed_subnetwork", direct)


# ---- the table --------------------------------------------------------------------------------------------------

MUTATIONS: list[tuple[Callable[[Patch], None], Check, dict[str, Any]]] = [
    (skip_the_drop_step, check_path_property, {}),
    (drop_in_the_first_half_only, check_path_property, {}),
    (grow_into_active_units, check_path_property, {}),
    (promote_only_the_last_layer, check_path_property, {}),
    (forget_the_shortfall, check_density, {"density": 0.9}),
    (skip_the_grow_step, check_density, {}),
    (leave_the_weights_of_dropped_connections, check_density, {}),
    (thaw_one_unit, check_frozen, {}),
    (train_frozen_units_too, check_frozen, {}),
    (let_biases_of_frozen_units_drift, check_frozen, {}),
    (reinitialise_every_unit, check_frozen, {}),
    (remember_under_every_unit, check_nothing_forgotten, {}),
    (remember_under_every_unit, check_masks, {}),
    (remember_under_the_mask_of_the_newest_episode, check_nothing_forgotten, {}),
    (remember_under_the_mask_of_the_newest_episode, check_masks, {}),
    (freeze_one_episode_late, check_nothing_forgotten, {}),
    (train_frozen_units_too, check_nothing_forgotten, {}),
    (write_memories_of_a_class_again_when_it_has_left, check_nothing_forgotten, {}),
    (purge_nothing, check_budgets, {}),
    (purge_one_episode_late, check_budgets, {}),
    (purge_by_age_only, check_budgets, {"replayed_episodes": 2}),
    (hold_a_class_under_both_its_episodes, check_budgets, {"replayed_episodes": 3, "stm_capacity": 40}),
    (remember_twice_as_much, check_budgets, {}),
    (keep_out_an_active_unit, check_left_out_units, {}),
    (keep_only_output_units_and_what_they_see_directly, check_left_out_units, {}),
    (skip_the_drop_step, check_left_out_units, {}),
]


@pytest.mark.parametrize(("config", "shape"), [(CONFIG, VECTOR), (convnet(phases=3), IMAGE)], ids=["mlp", "conv"])
@pytest.mark.parametrize(
    ("mutate", "check", "options"), MUTATIONS, ids=[f"{m.__name__}-{c.__name__}" for m, c, _ in MUTATIONS]
)
def test_a_broken_engine_is_caught_by(
    mutate: Callable[[Patch], None],
    check: Check,
    options: dict[str, Any],
    config: LearnerConfig,
    shape: tuple[int, ...],
    monkeypatch: Patch,
) -> None:
    config = change(config, **options)
    learn_watched(config, shape, SEQUENCE, checks=[check])
    mutate(monkeypatch)
    with pytest.raises(InvariantError):
        learn_watched(config, shape, SEQUENCE, checks=[check])


# ---- 6: resume --------------------------------------------------------------------------------------------------


def replace_tensors(patch: Patch, change_them: Callable[[dict[str, Tensor]], None]) -> None:
    def tensors_of(learner: Learner, pending: bool) -> dict[str, Tensor]:
        tensors = unbroken(learner, pending)
        change_them(tensors)
        return tensors

    unbroken = snapshot.tensors_of
    patch.setattr(snapshot, "tensors_of", tensors_of)


def save_no_random_state(patch: Patch) -> None:
    replace_tensors(patch, lambda tensors: tensors.update(random=torch.Generator().manual_seed(0).get_state()))


def load_no_random_state(patch: Patch) -> None:
    def take(tensors: Any, name: str, *arguments: Any) -> Tensor:
        tensor = unbroken(tensors, name, *arguments)
        return torch.Generator().get_state() if name == "random" else tensor

    unbroken = snapshot._Tensors.take
    patch.setattr(snapshot._Tensors, "take", take)


def save_no_ranks(patch: Patch) -> None:
    def without(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: torch.zeros_like(t) for name, t in tensors.items() if name.endswith(".ranks")})

    replace_tensors(patch, without)


def save_connections_that_are_not_the_ones(patch: Patch) -> None:
    """As many connections into the same units, elsewhere: where nothing is grown yet weights are zero."""

    def moved(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(".mask") and name.startswith("network.")]:
            mask, weight = tensors[name].clone(), tensors[name.replace("mask", "weight")].clone()
            if mask.ndim == 2 and weight.ndim == 2:
                tensors[name] = mask.flip(1)
                tensors[name.replace("mask", "weight")] = weight.flip(1)

    replace_tensors(patch, moved)


def save_coarser_weights(patch: Patch) -> None:
    def coarser(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: t.bfloat16().float() for name, t in tensors.items() if name.endswith("weight")})

    replace_tensors(patch, coarser)


def save_no_held_out_examples(patch: Patch) -> None:
    def without(tensors: dict[str, Tensor]) -> None:
        if "episode.heldout" in tensors:
            tensors["episode.heldout"] = tensors["episode.heldout"][:0]

    replace_tensors(patch, without)


def forget_which_examples_come_first(patch: Patch) -> None:
    def reversed_order(tensors: dict[str, Tensor]) -> None:
        for name in ("pending.x", "pending.y"):
            if name in tensors:
                tensors[name] = tensors[name].flip(0)

    replace_tensors(patch, reversed_order)


@pytest.mark.parametrize(
    "mutate",
    [
        save_no_random_state,
        load_no_random_state,
        save_no_ranks,
        save_connections_that_are_not_the_ones,
        save_coarser_weights,
        save_no_held_out_examples,
        forget_which_examples_come_first,
    ],
)
def test_a_snapshot_that_forgets_something_is_caught_by_check_resume(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    config = change(CONFIG, holdout=0.2)
    between, within, waiting = (trained(config, ((0, 1), (2, 3)), each=24) for _ in range(3))
    now = examples((4, 5), each=24, seed=7)
    with pytest.raises(Cancelled):
        within.learn_episode(*now, cancel=CancelAfter(6))
    waiting.observe(*now)

    def check_all() -> None:
        check_resume(between, lambda copy: copy.learn_episode(*now))
        check_resume(within, lambda copy: copy.resume_episode())
        check_resume(waiting, lambda copy: copy.end_episode())

    check_all()
    mutate(monkeypatch)
    with pytest.raises(InvariantError):
        check_all()


# ---- the reference notices what no invariant can ----------------------------------------------------------------


def replay_nothing(patch: Patch) -> None:
    patch.setattr(ShortTermMemory, "purge", lambda memory, episode, m: dataclasses.replace(memory, classes=()))


def train_at_another_temperature(patch: Patch) -> None:
    from sharp_engine.training.loss import supervised_contrastive_loss

    patch.setattr(
        episode, "supervised_contrastive_loss", lambda z, y, temperature: supervised_contrastive_loss(z, y, 0.11)
    )


def never_reinitialise(patch: Patch) -> None:
    patch.setattr(episode, "reinitialise_idle", lambda network, fan_in, generator: None)


def promote_twice(patch: Patch) -> None:
    def promote(network: Network) -> None:
        rewiring.promote(network)
        rewiring.promote(network)

    patch.setattr(episode, "promote", promote)


def keep_absent_connections_alive(patch: Patch) -> None:
    from sharp_engine.network.compact import CompactLayer

    patch.setattr(CompactLayer, "connections", lambda layer: torch.ones_like(layer.weight))


@pytest.mark.parametrize(
    "mutate",
    [
        replay_nothing,
        train_at_another_temperature,
        never_reinitialise,
        promote_twice,
        keep_absent_connections_alive,
        keep_out_an_active_unit,
        train_frozen_units_too,
    ],
)
def test_a_broken_engine_is_caught_by_the_reference(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_both(mlp(), VECTOR)
