"""What predictions and evaluations look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sharp.v1 import prediction_pb2

from ._labels import Label, decode_label, decode_labels, label_array

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ClassScore:
    """How well one class fits one example."""

    label: Label
    """The class."""
    vote_share: float
    """Its share of the vote, 0 to 1."""
    distance: float
    """Squared distance to it; never less than that of a class that did better."""


@dataclass(frozen=True)
class NearMemory:
    """One memory near an example."""

    label: Label
    """The class it stands for."""
    episode: int
    """The learned episode it is from, 1 for the first."""
    distance: float
    """Squared distance."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer for n examples; element i of everything belongs to example i."""

    labels: Array
    """The label of each example: int64 or texts, shape (n,)."""
    vote_shares: Array
    """The label's share of the vote, over 0 up to 1, float32 (n,)."""
    distances: Array
    """Distance to the label, float32 (n,): of all classes, none is nearer. To be compared within one learner only."""
    novelties: Array | None = None
    """How unlike everything known, 0 to 1, float32 (n,). None unless asked for."""
    top_classes: Sequence[Sequence[ClassScore]] = ()
    """The best classes of each example. Empty unless asked for."""
    nearest_memories: Sequence[Sequence[NearMemory]] = ()
    """The nearest memories of each example. Empty unless asked for."""
    model_version: int = 0
    """The version that answered; the lowest, if an array was sent in parts and a new version came in between."""
    episodes_learned: int = 0
    """Episodes that this version has learned."""
    time_in_queue: float = 0.0
    """Seconds that the request waited on the server; of several messages, the sum."""
    time_in_compute: float = 0.0
    """Seconds that the computation took, likewise."""
    examples_beyond_version: int = 0
    """Examples that the answer knows beyond its version: taught, or sent and counted before their episode is learned.
    Of several messages, the fewest."""
    learner: str = ""
    """The learner that answered, where none was named."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How right a learner is about labelled examples."""

    accuracy: float
    """Share of examples that were predicted right, 0 to 1."""
    per_class: Mapping[Label, float]
    """The same for the examples of each true class."""
    classes: Sequence[Label]
    """What the rows and columns of the confusion matrix stand for: true and predicted labels, sorted."""
    confusion: Array
    """How often a true class (row) was predicted as a class (column), int64."""
    examples: int
    """How many examples there were."""
    model_version: int
    """The version that answered, as in Prediction."""
    prediction: Prediction = field(repr=False)
    """All answers."""


def decode_prediction(answers: Sequence[prediction_pb2.PredictResponse]) -> Prediction:
    """Put together the answers for the parts of one array."""
    details = [detail for answer in answers for detail in answer.details]
    novelties = [value for answer in answers for value in answer.novelties]
    return Prediction(
        labels=label_array([label for answer in answers for label in decode_labels(answer.labels)]),
        vote_shares=_floats([value for answer in answers for value in answer.vote_shares]),
        distances=_floats([value for answer in answers for value in answer.distances]),
        novelties=_floats(novelties) if novelties else None,
        top_classes=[
            [ClassScore(decode_label(one.label), one.vote_share, one.distance) for one in detail.top_classes]
            for detail in details
        ],
        nearest_memories=[
            [NearMemory(decode_label(one.label), one.episode, one.distance) for one in detail.nearest_memories]
            for detail in details
        ],
        model_version=min(answer.model_version for answer in answers),
        episodes_learned=min(answer.episodes_learned for answer in answers),
        examples_beyond_version=min(answer.examples_beyond_version for answer in answers),
        time_in_queue=sum(_seconds(answer.time_in_queue) for answer in answers),
        time_in_compute=sum(_seconds(answer.time_in_compute) for answer in answers),
        learner=answers[0].learner,
    )


def evaluate(truth: Sequence[Label], prediction: Prediction) -> Evaluation:
    """Compare predictions with the truth."""
    predicted = prediction.labels.tolist()
    classes = sorted({*truth, *predicted}, key=lambda label: (isinstance(label, str), label))
    index = {label: position for position, label in enumerate(classes)}
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, ([index[label] for label in truth], [index[label] for label in predicted]), 1)
    totals = confusion.sum(axis=1)
    return Evaluation(
        accuracy=float(np.trace(confusion) / max(1, len(truth))),
        per_class={label: float(confusion[i, i] / totals[i]) for label, i in index.items() if totals[i]},
        classes=classes,
        confusion=confusion,
        examples=len(truth),
        model_version=prediction.model_version,
        prediction=prediction,
    )


def _floats(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float32)


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)
