"""How a crash loop is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.errors import require

LEARNER = "crashed"
GOAL_RECOVERY = 10.0
"""Seconds that a recovery may take on two quiet cores."""
CALM = "calm"
"""The learner that is taught the same stream in the end, with nobody killed."""


@dataclass(frozen=True)
class CrashOptions:
    """One run."""

    kills: int = 200
    seed: int = 0
    longest_pause: float = 1.5
    """Seconds from one recovery to the next kill, at most; each is drawn anew."""
    early: float = 0.25
    """Share of the server's restarts that are killed themselves before the server is up."""
    batches: int = 4
    """Of an episode."""
    examples: int = 12
    """Of a batch."""
    features: int = 32
    classes: int = 8
    """They come two at a time and come back."""
    lessons: int = 3
    """Every so-many-th batch comes after a lesson (Teach)."""
    operations: int = 3
    """Every so-many-th episode has no lessons, and is followed by a snapshot, a restored one, a forgotten class or an
    undone version."""
    aimed: float = 0.3
    """Share of the kills that wait for such an operation, and come in the middle of it."""
    pause: float = 0.0
    """Seconds after every batch, besides a little by chance."""
    ahead: int = 2
    """Episodes that the producer may be ahead of what is learned."""
    patience: float = 600.0
    """Seconds in which a killed server must be seen to go on."""
    store: str = "sqlite"
    """Where the journal is: sqlite, or postgres, which is killed too."""

    def __post_init__(self) -> None:
        require(self.kills >= 1, "kills", self.kills, "at least 1")
        require(self.store in ("sqlite", "postgres"), "store", self.store, "sqlite or postgres")
        require(self.lessons >= 1, "lessons", self.lessons, "at least 1")
        require(self.operations >= 1, "operations", self.operations, "at least 1")
        require(self.longest_pause >= 0, "longest-pause", self.longest_pause, "at least 0")
        require(self.classes >= 2 and self.classes % 2 == 0, "classes", self.classes, "even")

    def learner(self) -> dict[str, Any]:
        """Engine settings: small enough that an episode is learned in about a second, with phases to be killed in."""
        layer = {"kind": "linear", "units": 48}
        return {
            "architecture.kind": "mlp",
            "architecture.layers": [layer] * 3,
            "metric.random_features": 64,
            "training.phases": 4,
            "training.min_steps": 12,
        }
