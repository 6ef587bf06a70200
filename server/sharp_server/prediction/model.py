"""What serves: a predictor of a version and of what was taught since, with everything that answers need to know of it.

Immutable; made off the loop.

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
from sharp_server.storage.version_files import VersionFiles


@dataclass(frozen=True)
class Model:
    """One version of a learner, with what was taught since, ready to answer."""

    version: int = 0
    """0: there is none yet."""
    predictor: Predictor | None = None
    """Absent if no class is known, yet or any more."""
    summary: Summary | None = None
    """Of the version. Absent where there is none: nothing was learned, or no snapshot is sound."""
    examples_beyond_version: int = 0
    """That answers know beyond the version: taught, or come over Learn and counted."""
    batch_examples: int = 0
    """Of them, those of batches whose episode is not learned yet."""
    known: Summary | None = None
    """Of everything that answers know, where classes are known that the version does not have."""

    quality: QualityReport = QualityReport()
    """How good it is, beside the version before."""

    @property
    def episodes(self) -> int:
        """Episodes that it has learned."""
        return self.summary.episodes if self.summary is not None else 0

    @property
    def classes(self) -> list[Label]:
        """The classes of the version."""
        return self.summary.labels if self.summary is not None else []

    @property
    def everything(self) -> Summary | None:
        """Of everything that answers know."""
        return self.known or self.summary


class DamagedSnapshotError(SnapshotError):
    """The file of a snapshot is not what was written."""


def nothing_learned(version: int) -> RpcError:
    """The refusal where there is no class to answer with."""
    return RpcError("NOTHING_LEARNED", f"the learner knows no class {'any more' if version else 'yet'}")


def load_learner(files: VersionFiles, uid: str, name: str, sha256: bytes, device: str) -> Learner:
    """Read a stored snapshot, or raise DamagedSnapshotError if a sound file of it can't be had from anywhere."""
    path = files.path(uid, name)
    try:
        learner = load_file(path, sha256, device)
    except DamagedSnapshotError:
        if not files.heal(uid, name, sha256):
            raise
        learner = load_file(path, sha256, device)
    files.used(uid, name)
    return learner


def load_file(path: Path, sha256: bytes, device: str) -> Learner:
    """Read the file of a snapshot, or raise DamagedSnapshotError."""
    try:
        if sha256_of(path) != sha256:
            raise DamagedSnapshotError("the file does not have the checksum it was written with")
        return Learner.load(path, device=device, verified=True)
    except FileNotFoundError:
        raise DamagedSnapshotError("the file is missing") from None


def model_of(learner: Learner, version: int, summary: Summary | None = None) -> Model:
    """A learner's state as a model; its summary, where somebody has it already."""
    try:
        predictor: Predictor | None = learner.predictor.for_serving()
    except NothingLearnedError:
        predictor = None
    return Model(version, predictor, summary or summarize(learner))
