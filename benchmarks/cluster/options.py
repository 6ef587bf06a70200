"""What a run measures, what is to be reached, and with which sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.errors import require
from benchmarks.serving.options import Sizes

Part = Literal["followers", "ingest", "ray", "alone"]
PARTS: tuple[Part, ...] = ("followers", "ingest", "ray", "alone")

FOLLOWERS_TARGET = 1.8
"""Least that two followers answer, times one."""
RAY_TARGET = 0.9
"""Least share of the requests per second that a server keeps which Ray has started, in a cluster."""
ALONE_TARGET = 0.95
"""Least share of its requests per second that a server alone keeps; seconds and bytes may be the inverse at most."""
BEFORE = "bf281e5"
"""The last commit without a cluster."""

SMALL: dict[str, Any] = {
    "metric.enabled": False,
    "architecture.kind": "mlp",
    "architecture.layers": [{"kind": "linear", "units": 64}],
    "training.phases": 2,
    "training.min_steps": 4,
}
"""A learner that costs next to nothing to ask: what is compared is the server around it, whatever the engine became."""


@dataclass(frozen=True)
class ClusterOptions:
    """One run."""

    parts: tuple[Part, ...] = PARTS
    seconds: float = 3.0
    """Of each single measurement."""
    rounds: int = 5
    """Both sides are measured this often, in turns; the median counts."""
    starts: int = 5
    """Of a server, of each side."""
    sizes: Sizes = Sizes(images_per_class=60, first_epochs=1)
    before: str = BEFORE

    def __post_init__(self) -> None:
        for part in self.parts:
            require(part in PARTS, "only", part, "one of " + ", ".join(PARTS))
        require(self.seconds > 0, "seconds", self.seconds, "positive")
        require(self.rounds > 0, "rounds", self.rounds, "positive")
