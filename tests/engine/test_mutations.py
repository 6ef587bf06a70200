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
    snapshot,
)
from sharp_engine.checks import (
    InvariantError,
    check_budgets,
    check_density,
    check_frozen,
    check_left_out_units,
    check_masks,
    check_never_loses,
    check_nothing_forgotten,
    check_order,
    check_own_means,
    check_path_property,
    check_resume,
    check_taught,
)
from sharp_engine.config import FanIn
from sharp_engine.learning import state
from sharp_engine.memory import long_term as ltm
from sharp_engine.memory.episodic import EpisodicMemory
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.memory.short_term import ShortTermMemory, StoredClass
from sharp_engine.network import rewiring
from sharp_engine.network import state as network
from sharp_engine.network.compact import CompactNetwork
from sharp_engine.network.state import Network
from sharp_engine.prediction import learned_metric
from sharp_engine.prediction import vote as predictor
from sharp_engine.prediction.corrections import Corrections, fit_corrections
from sharp_engine.training import episode
from sharp_engine.training.knowledge import Knowledge, MetricLearner
from tests.engine.fixtures import IMAGE, VECTOR, CancelAfter, change, convnet, examples, metric, mlp, trained
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

    patch.setattr(state, "build", build)


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


# ---- 8: order, 9: coming back, 10: corrections ------------------------------------------------------------------


def replace_learn(patch: Patch, after: Callable[[SemanticMemory, SemanticMemory], SemanticMemory]) -> None:
    unbroken = SemanticMemory.learn
    patch.setattr(SemanticMemory, "learn", lambda memory, batches: after(memory, unbroken(memory, batches)))


def average_the_means_of_episodes(patch: Patch) -> None:
    """Instead of all examples alike: a class that comes back with few weighs as much as before."""

    def averaged(before: SemanticMemory, after: SemanticMemory) -> SemanticMemory:
        means = after.means.clone()
        for row, class_id in enumerate(before.class_ids):
            place = after.class_ids.index(class_id)
            old, new = int(before.counts[row]), int(after.counts[place])
            if new > old:
                arrived = (after.means[place] * new - before.means[row] * old) / (new - old)
                means[place] = (before.means[row] + arrived) / 2
        return dataclasses.replace(after, means=means)

    replace_learn(patch, averaged)


def scatter_about_the_provisional_centre(patch: Patch) -> None:
    from sharp_engine.memory import semantic

    def add(scatter: Tensor, rows: Tensor, factor: float = 1.0) -> None:
        if factor > 0:
            unbroken(scatter, rows, factor)

    unbroken = semantic._add_products
    patch.setattr(semantic, "_add_products", add)


def count_a_class_that_comes_back_as_a_new_one(patch: Patch) -> None:
    def fewer(before: SemanticMemory, after: SemanticMemory) -> SemanticMemory:
        back = sum(
            int(after.counts[after.class_ids.index(c)]) > int(n)
            for c, n in zip(before.class_ids, before.counts, strict=True)
        )
        return dataclasses.replace(after, freedom=after.freedom - back)

    replace_learn(patch, fewer)


def let_means_drift_towards_the_newest(patch: Patch) -> None:
    replace_learn(
        patch, lambda before, after: dataclasses.replace(after, means=0.999 * after.means + 0.001 * after.means[-1])
    )


def replace_a_class_that_comes_back(patch: Patch) -> None:
    """The fault that a correction had in the paper's long-term memory."""

    def learn(memory: SemanticMemory, batches: Any) -> SemanticMemory:
        batches = list(batches)
        for class_id in torch.cat([ids for _, ids in batches]).unique().tolist():
            memory = memory.forget(class_id)
        return unbroken(memory, batches)

    unbroken = SemanticMemory.learn
    patch.setattr(SemanticMemory, "learn", learn)


def forget_what_was_taught(patch: Patch) -> None:
    patch.setattr(SemanticMemory, "folded", lambda memory: dataclasses.replace(memory, taught_ids=(), taught_parts=()))


def replace_the_representatives_of_a_class_that_comes_back(patch: Patch) -> None:
    def represent(memory: EpisodicMemory, class_id: int, *arguments: Any) -> EpisodicMemory:
        others = tuple(c for c in memory.classes if c.class_id != class_id)
        return unbroken(dataclasses.replace(memory, classes=others), class_id, *arguments)

    unbroken = EpisodicMemory.represent
    patch.setattr(EpisodicMemory, "represent", represent)


def lose_the_oldest_class(patch: Patch) -> None:
    def learn(learner: MetricLearner, known: Knowledge, *arguments: Any) -> Any:
        after = unbroken(learner, known, *arguments)
        return after.forget(min(after.class_ids))

    unbroken = MetricLearner.learn
    patch.setattr(MetricLearner, "learn", learn)


def keep_no_correction(patch: Patch) -> None:
    patch.setattr(EpisodicMemory, "correct", lambda memory, *_: memory)


def correct_by_half(patch: Patch) -> None:
    def half(*arguments: Any) -> Corrections:
        fitted = fit_corrections(*arguments)
        return dataclasses.replace(fitted, margins=fitted.margins / 2)

    patch.setattr(learned_metric, "fit_corrections", half)


def bend_towards_the_first_class(patch: Patch) -> None:
    def bent(*arguments: Any) -> Corrections:
        fitted = fit_corrections(*arguments)
        return dataclasses.replace(fitted, rows=torch.zeros_like(fitted.rows))

    patch.setattr(learned_metric, "fit_corrections", bent)


METRIC_MUTATIONS: list[tuple[Callable[[Patch], None], Check]] = [
    (average_the_means_of_episodes, check_order),
    (scatter_about_the_provisional_centre, check_order),
    (count_a_class_that_comes_back_as_a_new_one, check_order),
    (replace_a_class_that_comes_back, check_order),
    (forget_what_was_taught, check_order),
    (let_means_drift_towards_the_newest, check_own_means),
    (average_the_means_of_episodes, check_never_loses),
    (replace_a_class_that_comes_back, check_never_loses),
    (replace_the_representatives_of_a_class_that_comes_back, check_never_loses),
    (lose_the_oldest_class, check_never_loses),
    (keep_no_correction, check_taught),
    (correct_by_half, check_taught),
    (bend_towards_the_first_class, check_taught),
]


def run_metric(check: Check) -> None:
    """Learn, come back, teach and correct, under one check."""
    config = metric(phases=1, rest_after=1)
    x, y = examples((0, 1, 2), each=30, seed=5)
    one, other = (trained(config, ((0, 1), (2, 3)), each=20) for _ in range(2))
    before = trained(config, ((0, 1), (2, 3)), each=20)
    one.learn_episode(x, y)
    if check is check_order:
        other.teach(x[60:].flip(0), y[60:][::-1])
        other.learn_episode(x[:60], y[:60])
        check_order(one, other)
    elif check is check_own_means:
        check_own_means(before, one, set(y))
    elif check is check_never_loses:
        check_never_loses(before, one, x, y)
        before.learn_episode(x[:1], y[:1])
        check_never_loses(other, before, x[:1], y[:1])
    else:
        for lesson in ((x[:9], [3, 0, 1, 2, 3, 0, 1, 2, 3]), (x[:9], y[:9])):
            one.teach(*lesson)
            check_taught(one, *lesson)


@pytest.mark.parametrize(
    ("mutate", "check"), METRIC_MUTATIONS, ids=[f"{m.__name__}-{c.__name__}" for m, c in METRIC_MUTATIONS]
)
def test_a_broken_metric_is_caught_by(mutate: Callable[[Patch], None], check: Check, monkeypatch: Patch) -> None:
    run_metric(check)
    mutate(monkeypatch)
    with pytest.raises(InvariantError):
        run_metric(check)


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
