"""What a run of the serving benchmark measures, and with which sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.errors import require

Part = Literal["requests", "messages", "ingest", "latency", "teach", "page"]
PARTS: tuple[Part, ...] = ("requests", "messages", "ingest", "latency", "teach", "page")

LATENCY_TARGET = 1.5
"""Most that p99 may be while learning and during swaps, times idle."""
TEACHING_TARGET = 1.2
"""Most that p99 of predictions may be while labels are taught, times idle."""
PAGE_TARGET = 1.1
"""Most that p99 of predictions may be beside ten open pages, times without."""
REQUESTS_TARGET = 0.6
"""Least share of the empty service's requests per second."""
MESSAGES_TARGET = 0.7
"""Least share of the engine's own examples per second."""
INGEST_TARGET = 0.6
"""Least share of what SQLite writes without gRPC, in bytes per second."""
POSTGRES_TARGET = 0.4
"""Least share of what a server takes on SQLite, in bytes per second, with the journal in PostgreSQL."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything: figures are for the full sizes, smaller ones are for trying out."""

    rounds: int = 5
    """Both sides are measured this often, in turns; the median counts."""
    latency_rounds: int = 9
    """The same for latencies: a moment's disturbance by the machine weighs more in the slowest hundredth."""
    in_flight: int = 32
    """Single-image requests under way at once."""
    message_examples: int = 64
    messages_in_flight: int = 4
    ingest_batches: int = 1000
    ingest_shape: tuple[int, int] = (256, 784)
    """Examples of a batch and bytes of an example."""
    images_per_class: int | None = None
    """That the learner is taught and asked about; None: all there are."""
    first_epochs: int = 4
    """Times that the learner sees every image before anything is measured."""
    swap_examples: int = 16
    """Examples per class of the small episodes that make one version after the other."""
    lessons: int = 200
    """Single calls of Teach in a round."""
    labels_per_second: float = 100.0
    """Taught while predictions are asked for."""
    training: tuple[tuple[str, Any], ...] = (("training.phases", 2), ("training.min_steps", 4))
    """Engine settings of the learner: a small episode is to be learned in a moment."""


TINY = Sizes(
    rounds=1,
    latency_rounds=1,
    ingest_batches=6,
    images_per_class=30,
    first_epochs=1,
    lessons=10,
    training=(*Sizes.training, ("metric.random_features", 64)),
)


@dataclass(frozen=True)
class ServingOptions:
    """One run."""

    parts: tuple[Part, ...] = PARTS
    seconds: float = 4.0
    """Of each single measurement."""
    image_side: int = 8
    """8: scikit-learn's digits; else made-up images with sides of this many pixels."""
    niceness: int = 10
    """Of the trainer."""
    sizes: Sizes = field(default_factory=Sizes)
    settings: tuple[tuple[str, Any], ...] = ()
    """Engine settings of the learner by dotted key, on top of those of `sizes`."""

    def __post_init__(self) -> None:
        for part in self.parts:
            require(part in PARTS, "only", part, "one of " + ", ".join(PARTS))
        require(self.seconds > 0, "seconds", self.seconds, "positive")
        require(8 <= self.image_side <= 64, "image-side", self.image_side, "8 to 64")
        require(0 <= self.niceness <= 19, "niceness", self.niceness, "0 to 19")

    @property
    def overrides(self) -> dict[str, Any]:
        """All engine settings of the learner that differ from the default preset."""
        return dict(self.sizes.training) | dict(self.settings)
