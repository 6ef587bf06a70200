"""The episode in progress: begun, learned by the metric and then phase by phase by the network, finished or abandoned.

The learner changes at the end of a phase and at the end of the episode, never in between: an episode that fails or is
cancelled leaves it as it was at the end of its last phase, from where it can be resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sharp_engine.errors import (
    ConfigError,
    EpisodeFailedError,
    EpisodeStateError,
    InputError,
    NoPositivePairError,
)
from sharp_engine.labels import Label, LabelLike
from sharp_engine.learning.state import LearnerState
from sharp_engine.learning.teaching import reteach, teach_anew
from sharp_engine.prediction import novelty
from sharp_engine.training.episode import EpisodeTrainer, Examples, RunningEpisode, consolidate, hold_out
from sharp_engine.training.progress import Cancel, EpisodeReport, Observer, Reporter
from sharp_engine.training.scarcity import scarce_units
from sharp_engine.training.sharding import ShardGroup, shard_group

log = logging.getLogger(__name__)

_CHUNK = 128
"""Examples per pass of the preprocessor."""


def has_pair(labels: Sequence[Label]) -> bool:
    """Whether some class has two examples."""
    return len(set(labels)) < len(labels)


def trains(learner: LearnerState, labels: Sequence[Label]) -> bool:
    """Whether the network learns these: with a learned metric it may rest, and needs pairs of several classes."""
    if not learner.config.metric.enabled:
        return True
    return not learner.network_resting and has_pair(labels) and len(set(labels)) > 1


def check_episode(learner: LearnerState, labels: Sequence[Label]) -> None:
    """Raise unless these make an episode: a class has two examples, and STM can hold one of each class.

    A class of the newest m episodes that could not be replayed would be forgotten. And the processes that share the
    shards must be able to.
    """
    shard_group(learner.config.training.shards, learner.device)
    if learner.knowledge is not None or learner.architecture is None and learner.config.metric.enabled:
        if not trains(learner, labels):
            return
    elif not has_pair(labels):
        raise NoPositivePairError(f"no class has two examples among {len(labels)}: nothing to pull together")
    m, capacity = learner.config.memory.replayed_episodes, learner.config.memory.stm_capacity
    held = set(labels)
    if learner.architecture is not None:
        oldest = learner.network_episodes + 1 - m
        held |= {learner.labels.label(s.class_id) for s in learner.stm.classes if s.episode > oldest}
    if m > 0 and len(held) > capacity:
        raise ConfigError(
            f"memory.stm_capacity of {capacity} cannot hold an example of each of the {len(held)} classes "
            f"of the newest {m} episodes"
        )


def begin(learner: LearnerState, examples: Examples) -> None:
    """Make an episode of these examples the one in progress."""
    random_before = learner.generator.get_state()
    if learner.first is not None and learner.first.class_ids:  # a better scale, for them too
        earlier = learner.first.features
        learner.preprocessor = learner.preprocessor.fitted(examples.x, learner.side_generator(), earlier)
        reteach(learner, learner.first)
    by_network = trains(learner, examples.y.tolist())
    most = learner.config.metric.representatives if learner.knowledge is not None else novelty.REFERENCES
    share = learner.config.memory.holdout if by_network else 0.0
    heldout = hold_out(examples.y, share, most, learner.generator)
    learner.running = RunningEpisode(
        *(learner.episodes + 1, examples, examples.fingerprint(), heldout, learner.network.copy()),
        *(random_before, by_network),
    )


def resume(
    learner: LearnerState, x: object, y: LabelLike | None, observer: Observer | None, cancel: Cancel | None
) -> EpisodeReport:
    """Learn what is left of the episode in progress; x and y only if it was saved without its examples."""
    running = learner.require_running()
    if running.examples is None:
        running.examples = _same_examples(learner, x, y, running)
    group = shard_group(learner.config.training.shards, learner.device)
    if group is not None:
        group.require_same(_shared_state(learner, running))
        cancel = group.agreed(cancel)
    _prepare(learner, running)
    phases = learner.config.training.phases if running.trains else 0
    reporter = Reporter(observer, cancel, running.number, phases, running.seconds)
    reporter.phase = running.phases_done
    trainer = _trainer(learner, running) if running.trains else None
    if trainer is not None:
        reporter.epochs, steps = trainer.epochs(learner.config.training)
        reporter.steps_left = (phases - running.phases_done) * reporter.epochs * steps
    reporter.notify("episode-started", learner.network)
    _learn_metric(learner, running, reporter)
    try:
        while trainer is not None and running.phases_done < phases:
            _learn_phase(learner, running, trainer, reporter, group)
    except EpisodeFailedError as error:
        if learner.knowledge is None:
            raise
        # The metric knows the episode: that the network cannot learn it must not undo this.
        log.warning("the network did not learn episode %d: %s", running.number, error)
        learner.network, running.trains, running.losses = running.before.copy(), False, []
        trainer = None
    return _finish(learner, running, trainer, reporter)


def _same_examples(learner: LearnerState, x: object, y: LabelLike | None, running: RunningEpisode) -> Examples:
    """The examples of an episode that was saved without them."""
    if x is None or y is None:
        raise EpisodeStateError(f"episode {running.number} was saved without its examples: give them again")
    values, labels = learner.validated(x, y)
    examples = Examples(values, torch.tensor([learner.labels.find(label) for label in labels]))
    if examples.fingerprint() != running.fingerprint:
        raise InputError(f"these are not the examples that episode {running.number} began with")
    return examples


def _shared_state(learner: LearnerState, running: RunningEpisode) -> Iterator[Tensor | str]:
    """What must be the same in all processes that learn an episode together, so that they do the same things."""
    metric_ready = running.knowledge is not None and not running.outdated
    yield f"{replace(learner.config, device='')} {running.number} {running.losses} {running.trains} {metric_ready}"
    yield running.fingerprint
    yield from (running.heldout, learner.generator.get_state())
    for layer in learner.network.layers:
        yield from (layer.weight, layer.bias, layer.mask, layer.ranks)
    for stored in learner.stm.classes:
        yield from (stored.packed.codes, stored.packed.scales)


@torch.no_grad()
def _prepare(learner: LearnerState, running: RunningEpisode) -> None:
    """Compute the stable features of the episode, once; the first examples settle what they are."""
    if learner.knowledge is None or running.features is not None:
        return
    assert running.examples is not None
    x = running.examples.x
    if not learner.preprocessor.ready:
        learner.preprocessor = learner.preprocessor.fitted(x, learner.side_generator())
    running.features = torch.cat([learner.preprocessor(part) for part in x.split(_CHUNK)])


@torch.no_grad()
def _learn_metric(learner: LearnerState, running: RunningEpisode, reporter: Reporter) -> None:
    """Make the episode known in the learned metric: predictions name it from here on."""
    if learner.knowledge is None or running.knowledge is not None and not running.outdated:
        return
    assert running.examples is not None and running.features is not None
    reporter.check_cancelled()
    y, features = running.examples.y, running.features
    running.knowledge = learner.metric_learner.learn(
        learner.knowledge, features, y, running.heldout, running.number, learner.side_generator()
    )
    running.outdated = False
    learner.changed()
    reporter.notify("metric-ready", learner.network)


def _trainer(learner: LearnerState, running: RunningEpisode) -> EpisodeTrainer:
    """The one that ran the phases before, unless something else is asked of it now."""
    assert running.examples is not None
    if running.trainer is None or running.trainer.config != learner.config:
        running.trainer = EpisodeTrainer(
            *(learner.preprocessor, learner.config, running.examples, running.heldout, learner.network, learner.stm),
            running.features,
        )
    return running.trainer


def _learn_phase(
    learner: LearnerState,
    running: RunningEpisode,
    trainer: EpisodeTrainer,
    reporter: Reporter,
    group: ShardGroup | None,
) -> None:
    """Rewire and train a copy; the learner changes only when the phase is complete."""
    network, generator = learner.network.copy(), learner.random_copy()
    reporter.phase, reporter.epoch, reporter.loss = running.phases_done + 1, 0, None
    reporter.check_cancelled()
    trainer.rewire(network, reporter.phase, generator)
    reporter.notify("phase-started", network)
    loss = trainer.train(network, generator, reporter, group)
    learner.network = network
    learner.generator.set_state(generator.get_state())
    running.losses.append(loss)
    running.seconds = reporter.seconds
    reporter.loss = loss
    reporter.notify("phase-ended", network)


def _finish(
    learner: LearnerState, running: RunningEpisode, trainer: EpisodeTrainer | None, reporter: Reporter
) -> EpisodeReport:
    """Consolidate; without a trainer the network has learned nothing, and stays as it is."""
    reporter.check_cancelled()
    assert running.examples is not None
    _learn_metric(learner, running, reporter)  # again, if something was taught or forgotten meanwhile
    known = {memory.class_id for memory in learner.ltm.classes}
    if learner.knowledge is not None:
        known |= learner.knowledge.class_ids
    generator = learner.random_copy()
    knowledge = running.knowledge
    if trainer is not None:
        network, number = learner.network.copy(), learner.network_episodes + 1
        after = consolidate(
            *(network, trainer, running, number, learner.stm, learner.ltm, learner.labels, learner.config),
            *(learner.preprocessor, generator),
        )
        if knowledge is not None:
            knowledge = learner.metric_learner.weigh(knowledge, after.predictor)
        learner.network, learner.stm, learner.ltm = after.network, after.stm, after.ltm
        learner.network_episodes = number
        learner.changed(after.predictor if knowledge is None else None)
    if knowledge is not None:
        learner.knowledge = knowledge
        learner.first = None
        learner.metric_learner.release(knowledge)
    learner.generator.set_state(generator.get_state())
    learner.episodes = running.number
    learner.running = None
    report = _report(learner, running, running.examples, known, reporter.seconds)
    if learner.knowledge is None:  # in a learned metric classes do not depend on idle units
        warning = scarce_units(running.before, learner.network, running.number)
        if warning:
            log.warning("after episode %d %s", running.number, warning)
    reporter.notify("episode-learned", learner.network)
    return report


def _report(
    learner: LearnerState, running: RunningEpisode, examples: Examples, known: set[int], seconds: float
) -> EpisodeReport:
    ids = examples.y.unique().tolist()
    return EpisodeReport(
        episode=running.number,
        classes=tuple(learner.labels.label(i) for i in ids),
        new_classes=tuple(learner.labels.label(i) for i in ids if i not in known),
        examples=len(examples.y),
        losses=tuple(running.losses),
        recruited={
            now.name: int((was.ranks == 0).sum()) - int((now.ranks == 0).sum())
            for was, now in zip(running.before.layers, learner.network.layers, strict=True)
        },
        seconds=seconds,
    )


def abandon(learner: LearnerState) -> None:
    """Drop the episode in progress: the learner is as before it began."""
    running = learner.require_running()
    learner.network = running.before
    learner.generator.set_state(running.random_before)
    learner.running = None
    learner.changed()
    held = {memory.class_id for memory in learner.ltm.classes} | {stored.class_id for stored in learner.stm.classes}
    if learner.knowledge is not None:
        if learner.first is not None:
            teach_anew(learner, learner.first)
        elif not learner.knowledge.class_ids:  # what was fitted to the abandoned examples goes with them
            learner.preprocessor = learner.preprocessor.unfitted()
        learner.metric_learner.release(learner.knowledge)
        held |= learner.knowledge.class_ids
    learner.labels.keep(held.union(*(part.y.tolist() for part in learner.pending)))
