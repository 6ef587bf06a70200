"""Classes that go, and classes that become one: in every memory, and in everything that is not learned yet."""

from __future__ import annotations

from dataclasses import replace

import torch

from sharp_engine.errors import EpisodeStateError, LabelError
from sharp_engine.labels import Label
from sharp_engine.learning.running import abandon, has_pair, trains
from sharp_engine.learning.state import LearnerState
from sharp_engine.learning.teaching import teach_anew
from sharp_engine.prediction import novelty
from sharp_engine.training.episode import Examples, RunningEpisode
from sharp_engine.training.knowledge import Knowledge


def forget(learner: LearnerState, label: Label) -> None:
    """Remove a class; the others stay as they are."""
    class_id = learner.labels.find(label)
    running = learner.running
    if running is not None and running.examples is None:
        raise EpisodeStateError("the episode in progress was loaded without its examples: give them, or abandon it")
    _forget_pending(learner, class_id)
    if learner.architecture is not None:
        learner.segmenter.forget(class_id)
        learner.stm = learner.stm.forget(class_id)
    learner.ltm = learner.ltm.forget(class_id)
    if learner.first is not None:
        learner.first = learner.first.forget(class_id)
    if learner.first is not None and running is None:
        teach_anew(learner, learner.first)
    elif learner.knowledge is not None:
        learner.knowledge = learner.metric_learner.calibrate(_folded(learner.knowledge.forget(class_id)))
    learner.labels.remove(label)
    if running is not None and running.examples is not None:
        _forget_in_progress(learner, running, running.examples, class_id)
    learner.changed()


def merge(learner: LearnerState, source: Label, target: Label) -> None:
    """Make one class part of another."""
    learner.require_no_episode()
    source_id, target_id = learner.labels.find(source), learner.labels.find(target)
    if source_id == target_id:
        raise LabelError(f"class {source!r} cannot be merged with itself")
    if learner.first is not None:
        learner.first = learner.first.merge(source_id, target_id)
        teach_anew(learner, learner.first)
    elif learner.knowledge is not None:
        most = learner.config.metric.representatives_of(len(learner.knowledge.class_ids))
        knowledge = learner.knowledge.merge(source_id, target_id, most)
        learner.knowledge = learner.metric_learner.calibrate(knowledge)
    if learner.architecture is not None:
        _merge_memories(learner, source_id, target_id)
        learner.segmenter.merge(source_id, target_id)
    learner.pending = [Examples(p.x, torch.where(p.y == source_id, target_id, p.y)) for p in learner.pending]
    learner.labels.remove(source)
    learner.changed()


def _forget_pending(learner: LearnerState, class_id: int) -> None:
    parts = learner.pending
    ids = torch.cat([part.y for part in parts]) if parts else torch.zeros(0, dtype=torch.int64)
    bounds = torch.tensor([0, *learner.found]).cumsum(0).tolist()
    lengths = [int((ids[a:b] != class_id).sum()) for a, b in zip(bounds, bounds[1:], strict=False)]
    learner.found = [length for length in lengths if length]
    learner.pending = [kept for part in parts if len((kept := _without(part, class_id)).y)]


def _forget_in_progress(learner: LearnerState, running: RunningEpisode, examples: Examples, class_id: int) -> None:
    kept = examples.y != class_id
    running.trainer = None  # it holds the class, among the examples or in what is replayed
    if running.knowledge is not None:
        running.knowledge, running.outdated = _folded(running.knowledge.forget(class_id)), True
    if bool(kept.all()):
        return
    rest = examples.y[kept].tolist()
    too_thin = not rest or running.trains and not trains(learner, rest)
    if not has_pair(rest) if learner.knowledge is None else too_thin:
        abandon(learner)
        return
    if running.features is not None:
        running.features = running.features[kept.to(running.features.device)]
    place = kept.cumsum(0) - 1
    running.heldout = place[running.heldout[kept[running.heldout]]]
    running.examples = _without(examples, class_id)
    running.fingerprint = running.examples.fingerprint()


def _merge_memories(learner: LearnerState, source: int, target: int) -> None:
    """Merge what the network's two memories hold of a class into what they hold of another."""
    stm, ltm = learner.stm, learner.ltm
    known = {memory.class_id: memory for memory in ltm.classes if memory.class_id in (source, target)}
    if len(known) == 2 and not bool((known[source].mask & known[target].mask).any()):
        learner.stm, learner.ltm = stm.forget(source), ltm.forget(source)  # no unit could compare both
        return
    replayed = {stored.class_id for stored in stm.classes} & {source, target}
    if len(replayed) < len(known):
        stm = stm.forget(source).forget(target)
    learner.stm = stm.merge(source, target)
    learner.ltm = novelty.calibrate(ltm.merge(source, target, learner.config.memory.ltm_per_class))


def _folded(knowledge: Knowledge) -> Knowledge:
    return replace(knowledge, semantic=knowledge.semantic.folded())


def _without(examples: Examples, class_id: int) -> Examples:
    kept = examples.y != class_id
    return Examples(examples.x[kept], examples.y[kept])
