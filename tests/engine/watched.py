"""Learning under watch: every invariant is checked after every phase and every episode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Sequence

import torch

from sharp_engine import EpisodeFailedError, Learner, LearnerConfig, Progress
from sharp_engine.checks import (
    check_budgets,
    check_density,
    check_frozen,
    check_left_out_units,
    check_masks,
    check_nothing_forgotten,
    check_path_property,
)
from tests.engine.fixtures import examples

Check = Callable[..., None]

ALL: tuple[Check, ...] = (
    check_path_property,
    check_density,
    check_frozen,
    check_nothing_forgotten,
    check_budgets,
    check_masks,
    check_left_out_units,
)


def learn_watched(
    config: LearnerConfig,
    shape: tuple[int, ...],
    sequence: Sequence[Sequence[int]],
    each: int = 8,
    checks: Container[Check] = ALL,
) -> Learner:
    """Learn episodes of classes and check everything that must hold, whenever it must hold."""
    learner = Learner(config)
    learner.build(shape)
    probe = torch.rand(7, *shape, generator=torch.Generator().manual_seed(1)) * 2.0 - 0.5
    last = learner.network.copy()
    past: list[Learner] = []

    def run(check: Check, *arguments: object) -> None:
        if check in checks:
            check(*arguments)

    def look(progress: Progress | None = None) -> None:
        nonlocal last
        if progress is not None and progress.event not in ("phase-ended", "episode-learned"):
            return
        run(check_path_property, learner.network)
        run(check_density, learner.network)
        # What is frozen now is compared with the last look, that one with the look before, and so on back to the
        # moment of freezing.
        run(check_frozen, last, learner.network)
        last = learner.network.copy()
        now = copy.copy(learner)
        now.running = None  # the network of this phase, not the one before the episode
        run(check_left_out_units, now, probe)

    look()
    for number, classes in enumerate(sequence):
        try:
            learner.learn_episode(*examples(classes, shape, each, seed=number), observer=look)
        except EpisodeFailedError:  # a network so thin that nothing reaches its end: told, and undone
            learner.abandon_episode()
        look()
        run(check_budgets, learner)
        run(check_masks, learner)
        for before in past:
            run(check_nothing_forgotten, before, learner, probe)
        past.append(copy.deepcopy(learner))
    return learner
