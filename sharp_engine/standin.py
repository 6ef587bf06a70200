"""Stands in until the engine has these itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sharp_engine.labels import Label, Labels

if TYPE_CHECKING:
    from sharp_engine.learner import Learner


@dataclass(frozen=True)
class ClassQuality:
    label: Label
    examples: int
    right: int


@dataclass(frozen=True)
class Confusion:
    label: Label
    answered: Label
    examples: int


@dataclass(frozen=True)
class Quality:
    accuracy: float
    classes: tuple[ClassQuality, ...]
    confusions: tuple[Confusion, ...]


@torch.no_grad()
def quality(learner: Learner) -> Quality | None:
    from sharp_engine.prediction.metric import Metric, whitened_means
    from sharp_engine.training.knowledge import _left_out

    known = learner.knowledge
    if known is None or not known.class_ids:
        return None
    whitening = learner._whitening_of(known)
    single = learner.metric_learner._single_memories(known, whitening)
    if single is None:
        return None
    metric = Metric(whitened_means(known.semantic, whitening), learner.config.metric.floor, known.calibration.noise)
    at, rows = _left_out(metric, whitening, single)
    answers = metric.scores(at.z).argmax(1).tolist()
    names = [learner.labels.label(class_id) for class_id in metric.class_ids]
    pairs: dict[tuple[Label, Label], int] = {}
    for row, answer in zip(rows.tolist(), answers, strict=True):
        pairs[names[row], names[answer]] = pairs.get((names[row], names[answer]), 0) + 1
    classes = []
    for label in names:
        asked = sum(n for (truth, _), n in pairs.items() if truth == label)
        classes.append(ClassQuality(label, asked, pairs.get((label, label), 0)))
    confusions = tuple(Confusion(a, b, n) for (a, b), n in pairs.items() if a != b)
    return Quality(sum(c.right for c in classes) / len(answers), tuple(classes), confusions)


def rename(learner: Learner, old: Label, new: Label) -> None:
    class_id = learner.labels.find(old)
    pairs = [(i, new if i == class_id else label) for i, label in learner.labels.pairs()]
    learner.labels = Labels(pairs, learner.labels.next_id, learner.labels.kind)
    learner._predictor = None
