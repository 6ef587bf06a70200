"""What a seed decides before anything happens: who does what, with which examples, and what goes wrong meanwhile.

Another kind of actor is another field here, a class in `actors`, and whatever it must never break in `checks`.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEARNER = "tiny"
FEATURES = 4
FORGETTABLE = "z"
"""The class that operators ask to forget."""
_CLASSES = ("a", "b", "c", FORGETTABLE)
SETTINGS: dict[str, Any] = {
    "architecture.kind": "mlp",
    "architecture.layers": [{"kind": "linear", "units": 4}],
    "training.phases": 2,
    "training.min_steps": 1,
    "training.batch_size": 8,
    "training.selection_examples": 8,
    "metric.random_features": 4,
    "memory.stm_capacity": 8,
    "memory.ltm_per_class": 4,
    "prediction.neighbours": 3,
}
"""Of the learners: vectors of four values, so small that an episode takes milliseconds."""


@dataclass(frozen=True)
class Labelled:
    """Some labelled examples."""

    x: NDArray[np.float32]
    labels: tuple[str, ...]


def examples(seed: int, key: str, most: int) -> Labelled:
    """What is sent under a key: the same, however often."""
    chance = np.random.default_rng((seed, zlib.crc32(key.encode())))
    count = int(chance.integers(1, most + 1))
    classes = chance.choice(len(_CLASSES), count, p=(0.3, 0.3, 0.25, 0.15))
    corners = np.eye(len(_CLASSES), FEATURES, dtype=np.float32)[classes]
    noise = chance.random((count, FEATURES), np.float32)
    return Labelled(0.6 * corners + 0.4 * noise, tuple(_CLASSES[number] for number in classes))


def batch(seed: int, learner: str, stream: str, sequence: int) -> Labelled:
    """A batch of a stream."""
    return examples(seed, f"{learner}/{stream}/{sequence}", 6)


def lesson(seed: int, learner: str, request_id: str) -> Labelled:
    """A lesson."""
    return examples(seed, f"{learner}/{request_id}", 2)


@dataclass(frozen=True)
class StreamPlan:
    """What one producer sends."""

    learner: str
    name: str
    marks: tuple[int, ...]
    """Sequence numbers that are marks."""
    last: int
    """Sequence number with which it ends."""
    cuts: int
    """How often its connection breaks."""


@dataclass(frozen=True)
class Plan:
    """One schedule."""

    seed: int
    longest_delay: float
    seconds: float
    """About how long the actors have something to do."""
    learners: tuple[str, ...]
    streams: tuple[StreamPlan, ...]
    lessons: dict[str, int] = field(default_factory=dict)
    """By learner."""
    operations: tuple[str, ...] = ()
    after: tuple[StreamPlan, ...] = ()
    """What is sent when everything else is learned, and stays unlearned."""
    crashes: tuple[float, ...] = ()
    """Moments."""
    stops: tuple[float, ...] = ()
    trainer_kills: tuple[float, ...] = ()
    teacher_kills: tuple[float, ...] = ()
    full_disks: tuple[tuple[float, float], ...] = ()
    """From when to when."""
    version_seconds: float = 30.0
    """After which lessons become a version."""
    keep: int = 1000
    """Automatic snapshots."""
    attempts: int = 1000
    """Failed tries after which an episode is parked; the operator has it tried again in the end."""


def make_plan(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"plan {seed}")
    seconds = chance.choice((2.0, 8.0, 30.0))

    def moments(most: int) -> tuple[float, ...]:
        return tuple(sorted(chance.uniform(0.0, seconds) for _ in range(chance.randint(0, most))))

    learners = (LEARNER, "other") if chance.random() < 0.25 else (LEARNER,)
    streams = []
    for learner in learners:
        for number in range(chance.choice((1, 1, 2))):
            last, marks = 0, []
            for _ in range(chance.randint(1, 2)):
                last += chance.randint(1, 3) + 1
                marks.append(last)
            if chance.random() < 0.2:  # a mark that closes nothing
                marks.append(last + 1)
            streams.append(
                StreamPlan(learner, f"stream-{number}", tuple(marks), marks[-1], chance.choice((0, 0, 1, 2)))
            )
    kinds = ("forget", "snapshot", "restore", "undo")
    full = [(begin, begin + chance.uniform(0.1, 4.0)) for begin in moments(2)]
    return Plan(
        seed=seed,
        longest_delay=chance.choice((0.01, 0.1, 1.0)),
        seconds=seconds,
        learners=learners,
        streams=tuple(streams),
        lessons={learner: chance.randint(0, 5) for learner in learners},
        after=tuple(StreamPlan(learner, "after", (), 2, 0) for learner in learners),
        operations=tuple(chance.choice(kinds) for _ in range(chance.randint(0, 4))),
        crashes=moments(3),
        stops=moments(1) if chance.random() < 0.3 else (),
        trainer_kills=moments(3),
        full_disks=tuple(full) if chance.random() < 0.5 else (),
        version_seconds=chance.choice((0.5, 3.0, 30.0)),
        keep=chance.choice((1000, 1000, 2)),
        attempts=chance.choice((1000, 1000, 1)),
        teacher_kills=moments(2),
    )
