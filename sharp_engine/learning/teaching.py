"""Single examples, learned at once in the learned metric: the next prediction names them.

The very first ones settle the scale of features together, and are taught anew with every better one. An episode in
progress knows what is taught while it runs, and so does the learner if the episode is abandoned.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sharp_engine.errors import EpisodeStateError
from sharp_engine.labels import LabelLike
from sharp_engine.learning.state import LearnerState
from sharp_engine.memory.first_examples import FirstExamples
from sharp_engine.network.architecture import resolve_architecture
from sharp_engine.training.knowledge import Knowledge, Taught
from sharp_engine.training.progress import TeachReport


@torch.no_grad()
def teach(learner: LearnerState, x: object, y: LabelLike, correct: bool) -> TeachReport:
    """Learn labelled examples; `correct`: those that would be answered wrong are kept as corrections."""
    examples, labels = learner.validated(x, y)
    if not learner.config.metric.enabled:
        raise EpisodeStateError("teaching needs a learned metric, and metric.enabled is false for this learner")
    shape = tuple(examples.shape[1:])
    if not _can_teach(learner, shape):
        raise EpisodeStateError("images are taught once a first episode has shown what they look like")
    if learner.architecture is None:
        learner.build(shape)
    assert learner.knowledge is not None
    features, ids = learner.preprocessor.unscaled(examples), learner.labels.ids(labels).tolist()
    before, running, first = learner.knowledge.class_ids, learner.running, learner.first
    if running is not None and running.knowledge is not None:
        before |= running.knowledge.class_ids
    if first is not None:
        first = first.joined(features, ids, correct)
    if first is not None and running is None:
        taught = teach_anew(learner, first)
        wrong = sum(row >= len(first.class_ids) - len(ids) for row in taught.wrong)
    else:
        wrong = _teach_more(learner, features, ids, correct)
    learner.first = first if first is not None and first.few else None
    learner.changed()
    classes = list(dict.fromkeys(ids))
    return TeachReport(
        examples=len(ids),
        classes=tuple(learner.labels.label(i) for i in classes),
        new_classes=tuple(learner.labels.label(i) for i in classes if i not in before),
        corrections=wrong,
    )


def teach_anew(learner: LearnerState, first: FirstExamples) -> Taught:
    """Know the first examples and nothing else, by a scale of their own."""
    if not first.class_ids:
        learner.preprocessor = learner.preprocessor.unfitted()
        learner.knowledge = learner.nothing_known()
        return Taught(learner.knowledge)
    learner.preprocessor = learner.preprocessor.scaled_by(first.features)
    return reteach(learner, first)


def reteach(learner: LearnerState, first: FirstExamples) -> Taught:
    """Know the first examples and nothing else, by the scale that there is."""
    scale, ids = learner.preprocessor.scale, torch.tensor(first.class_ids)
    assert scale is not None
    nothing, s = learner.nothing_known(), scale(first.features)
    taught = learner.metric_learner.teach(nothing, s, ids, learner.episodes, None, first.correct)
    learner.knowledge = taught.knowledge
    return taught


def _can_teach(learner: LearnerState, shape: tuple[int, ...]) -> bool:
    """Whether examples of this shape have stable features already, or can have them without an episode."""
    if learner.architecture is not None:
        return learner.preprocessor.ready or learner.architecture.kind != "dictionary"
    return resolve_architecture(learner.config.architecture, shape, stable=True).kind != "dictionary"


def _teach_more(learner: LearnerState, features: Tensor, ids: list[int], correct: bool) -> int:
    """Add examples to what is known; return how many of them were answered wrong."""
    scale, running = learner.preprocessor.scale, learner.running
    assert scale is not None and learner.knowledge is not None
    s, classes = scale(features), torch.tensor(ids)
    kept: tuple[int, ...] = ()
    wrong: int | None = None
    if running is not None and running.knowledge is not None:
        answered = _taught(learner, running.knowledge, s, classes, running.number, correct)
        running.knowledge, running.outdated = answered.knowledge, True
        kept, wrong = answered.kept, len(answered.wrong)
    taught = _taught(learner, learner.knowledge, s, classes, learner.episodes, correct, kept)
    learner.knowledge = taught.knowledge
    return len(taught.wrong) if wrong is None else wrong


def _taught(
    learner: LearnerState,
    known: Knowledge,
    s: Tensor,
    ids: Tensor,
    episode: int,
    correct: bool,
    corrections: Sequence[int] = (),
) -> Taught:
    """What teaching single examples s (n, features) makes of some knowledge."""
    vote = learner.network_vote() if correct and known.calibration.weight else None
    return learner.metric_learner.teach(known, s, ids, episode, vote, [correct] * len(ids), corrections)
