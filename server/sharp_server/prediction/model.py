"""What serves: a version's predictor with everything that answers need to know of it. Immutable; loaded off the loop.

A file whose SHA-256 is not the recorded one is never loaded: no answer comes from damaged weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharp_engine import Label, Learner, NothingLearnedError, Predictor, SnapshotError
from sharp_server.prediction.summary import figures_of
from sharp_server.storage.data_folder import sha256_of


@dataclass(frozen=True)
class Model:
    """One version of a learner, ready to answer."""

    version: int = 0
    """0: nothing was learned yet."""
    episodes: int = 0
    predictor: Predictor | None = None
    """Absent if no class is known, yet or any more."""
    figures: dict[str, Any] = field(default_factory=dict)
    """See `figures.figures_of`; empty for version 0."""
    device: str = ""

    @property
    def classes(self) -> list[Label]:
        """The classes that answers can name."""
        return [entry[0] for entry in self.figures.get("classes", ())]


class DamagedSnapshot(SnapshotError):  # noqa: N818 (says what is the matter)
    """The file of a snapshot is not what was written."""


def load_learner(path: Path, sha256: bytes, device: str) -> Learner:
    """Read a stored snapshot, or raise DamagedSnapshot."""
    try:
        if sha256_of(path) != sha256:
            raise DamagedSnapshot("the file does not have the checksum it was written with")
        return Learner.load(path, device=device)
    except FileNotFoundError:
        raise DamagedSnapshot("the file is missing") from None


def model_of(learner: Learner, version: int) -> Model:
    """A learner's state as a model."""
    try:
        predictor = learner.predictor
    except NothingLearnedError:
        predictor = None
    return Model(version, learner.episodes, predictor, figures_of(learner), str(learner.device))


def load_model(path: Path, sha256: bytes, version: int, device: str) -> Model:
    """The model in a snapshot's file; an episode in progress is not part of it."""
    return model_of(load_learner(path, sha256, device), version)
