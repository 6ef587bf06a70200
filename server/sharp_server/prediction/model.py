"""What serves: a version's predictor with everything that answers need to know of it. Immutable; loaded off the loop.

A file whose SHA-256 is not the recorded one is never loaded: no answer comes from damaged weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sharp_engine import Label, Learner, NothingLearnedError, Predictor, SnapshotError
from sharp_server.errors import RpcError
from sharp_server.prediction.quality import QualityReport
from sharp_server.prediction.summary import Summary, summarize
from sharp_server.storage.data_folder import sha256_of


@dataclass(frozen=True)
class Model:
    """One version of a learner, ready to answer."""

    version: int = 0
    """0: nothing was learned yet."""
    predictor: Predictor | None = None
    """Absent if no class is known, yet or any more."""
    summary: Summary | None = None
    """Absent where there is nothing to answer from: nothing was learned, or no snapshot is sound."""

    quality: QualityReport = QualityReport()
    """How good it is, beside the version before."""

    @property
    def episodes(self) -> int:
        """Episodes that it has learned."""
        return self.summary.episodes if self.summary is not None else 0

    @property
    def classes(self) -> list[Label]:
        """The classes that answers can name."""
        return self.summary.labels if self.summary is not None else []


class DamagedSnapshotError(SnapshotError):
    """The file of a snapshot is not what was written."""


def nothing_learned(version: int) -> RpcError:
    """The refusal where there is no class to answer with."""
    return RpcError("NOTHING_LEARNED", f"the learner knows no class {'any more' if version else 'yet'}")


def load_learner(path: Path, sha256: bytes, device: str) -> Learner:
    """Read a stored snapshot, or raise DamagedSnapshotError."""
    try:
        if sha256_of(path) != sha256:
            raise DamagedSnapshotError("the file does not have the checksum it was written with")
        return Learner.load(path, device=device)
    except FileNotFoundError:
        raise DamagedSnapshotError("the file is missing") from None


def model_of(learner: Learner, version: int, summary: Summary | None = None) -> Model:
    """A learner's state as a model; its summary, where somebody has it already."""
    try:
        predictor = learner.predictor
    except NothingLearnedError:
        predictor = None
    return Model(version, predictor, summary or summarize(learner))
