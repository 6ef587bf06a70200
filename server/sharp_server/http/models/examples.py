"""Examples: asked about, and taught."""

from __future__ import annotations

from pydantic import Field

from sharp_server.http.models.base import Answer, Count, Label, Number, Question, UnsignedInteger, Version


class PredictRequest(Question):
    """Vectors, and what to say about them."""

    vectors: list[list[Number]] = Field(min_length=1)
    top_k: UnsignedInteger = 0
    nearest_memories: UnsignedInteger = 0
    novelty: bool = False
    min_model_version: Version = 0
    min_examples: Version = 0


class ClassScore(Answer):
    """How well one class fits."""

    label: Label
    vote_share: float
    distance: float


class NearMemory(Answer):
    """One memory near an example."""

    label: Label
    episode: Count
    distance: float


class Prediction(Answer):
    """The answer for one example."""

    label: Label
    vote_share: float
    distance: float
    novelty: float | None = Field(description="0 to 1; null: not asked for.")
    top_classes: list[ClassScore]
    nearest_memories: list[NearMemory]


class Predictions(Answer):
    """The answers, in the order of the examples."""

    predictions: list[Prediction]
    model_version: Count
    examples_beyond_version: Count = Field(description="Known beyond the version: taught, or come and counted.")
    episodes_learned: Count
    seconds_in_queue: float
    seconds_in_compute: float


class TeachRequest(Question):
    """Labelled vectors, and a name of the caller's own for the lesson."""

    request_id: str = Field(description="Unique within the learner; a random UUID will do.")
    vectors: list[list[Number]] = Field(min_length=1)
    labels: list[Label] = Field(min_length=1, description="One for each vector.")


class Lesson(Answer):
    """What was taught is durable, and answers know it."""

    model_version: Count
    examples_beyond_version: Count
    examples_known: Count = Field(description="Give it as `min_examples` to a prediction that must know this lesson.")
    examples: Count
    new_classes: list[Label]
    corrections: Count = Field(description="Examples that were answered wrong before.")
    repetition: bool = Field(description="Whether a lesson of this id was known already.")
