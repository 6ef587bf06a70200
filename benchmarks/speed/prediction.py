"""Examples per second of `predict` against a floor: the dense network's bare forward and one bare matrix product.

Long-term memories of any size are made up, on the masks of classes that were really learned, in two kinds: in clusters,
each class around a direction of its own near that of a learned one, as they are in use; and in random directions, where
every memory of every class is about as near to an example as any other.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F

from benchmarks.datasets import Examples
from benchmarks.speed.baseline import DenseNetwork
from benchmarks.speed.timing import Comparison, in_turns
from sharp_engine import Learner
from sharp_engine.memory.long_term import ClassMemory, LongTermMemory
from sharp_engine.prediction.novelty import calibrate

TARGET = 1.3
"""Of batches of at least `TARGET_BATCH`."""
TARGET_BATCH = 64

Kind = Literal["clusters", "random"]
KINDS: tuple[Kind, ...] = ("clusters", "random")
"""How the memories lie."""


@dataclass(frozen=True)
class PredictionTimes:
    """One size of batch, and one size and kind of memory."""

    kind: Kind
    batch: int
    classes: int
    per_class: int
    full: Comparison
    """`predict` as it is called by default, with the novelty score."""
    labels_only: Comparison
    """Without the novelty score."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "memories": self.kind,
            "batch": self.batch,
            "classes": self.classes,
            "per_class": self.per_class,
            "examples_per_second": self.batch / self.full.ours.wall,
            "examples_per_second_without_novelty": self.batch / self.labels_only.ours.wall,
            "baseline_examples_per_second": self.batch / self.full.baseline.wall,
            "with_novelty": self.full.to_dict(),
            "without_novelty": self.labels_only.to_dict(),
        }


def with_memories(learner: Learner, kind: Kind, classes: int, per_class: int, folder: Path) -> Learner:
    """A learner like this one that remembers other classes: made-up ones on the masks of its own."""
    generator = torch.Generator().manual_seed(classes)
    path = folder / "learner.safetensors"
    learner.save(path)
    other = Learner.load(path, device=str(learner.device))
    known = other.ltm.classes
    ids = other.labels.ids([1_000_000 + i for i in range(classes)]).tolist()
    made_up = []
    for i, class_id in enumerate(ids):
        like = known[i % len(known)]
        units = int(like.mask.sum())
        noise = torch.randn(1 + per_class, units, generator=generator).to(other.device) / units**0.5
        vectors = like.vectors.mean(0) + 0.5 * noise[:1] + 0.2 * noise[1:] if kind == "clusters" else noise[1:]
        vectors = F.normalize(vectors.clamp(min=0.0), dim=1)
        reference = torch.rand(max(1, len(like.reference)), generator=generator).to(other.device)
        made_up.append(ClassMemory(class_id, like.episode, like.mask.clone(), vectors, reference))
    ltm = LongTermMemory(tuple(sorted(made_up, key=lambda memory: (memory.episode, memory.class_id))))
    other.ltm = calibrate(ltm)
    other.save(path)  # the predictor of a loaded learner is made from what it remembers
    return Learner.load(path, device=str(learner.device))


def measure(
    learner: Learner,
    sample: Examples,
    batches: Sequence[int],
    memories: Sequence[tuple[int, int]],
    *,
    rounds: int,
    least_seconds: float,
) -> Iterator[PredictionTimes]:
    """Both kinds of memories in all sizes, with all sizes of batch, one after the other."""
    assert learner.architecture is not None
    dense = DenseNetwork(learner.architecture).to(learner.device).eval()
    every = torch.from_numpy(sample.x)
    with tempfile.TemporaryDirectory() as folder:
        for kind, (classes, per_class) in itertools.product(KINDS, memories):
            remembering = with_memories(learner, kind, classes, per_class, Path(folder))
            matrix = torch.rand(dense.outputs, classes * per_class).to(learner.device)
            for batch in batches:
                x = every[torch.arange(batch) % len(every)]
                yield PredictionTimes(
                    kind,
                    batch,
                    classes,
                    per_class,
                    *(_against_floor(remembering, dense, matrix, x, n, rounds, least_seconds) for n in (True, False)),
                )


def _against_floor(
    learner: Learner,
    dense: DenseNetwork,
    matrix: torch.Tensor,
    x: torch.Tensor,
    novelty: bool,
    rounds: int,
    least_seconds: float,
) -> Comparison:
    floats = (x.float() / 255.0).to(learner.device)

    def ours() -> None:
        learner.predict(x, novelty=novelty)

    @torch.inference_mode()
    def floor() -> None:
        dense(floats) @ matrix

    spent = in_turns(ours, floor, rounds=rounds, least_seconds=least_seconds)
    name = f"batch {len(x)}, {matrix.shape[1]:,} memories{'' if novelty else ', without novelty'}"
    return Comparison(name, "batch", *spent, TARGET if len(x) >= TARGET_BATCH else None)
