"""The answers of the client: small frozen dataclasses with readable reprs, one per message of the wire.

They hold values only. Nothing here sends anything, and no protobuf message leaves this package through them.
"""

from .decoding import Answer
from .episodes import (
    DiscardedEpisode,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeEvent,
    EpisodeLearned,
    EpisodeParked,
    EpisodeStarted,
    EpisodeStatistics,
    ParkedEpisode,
    Progress,
    RetriedEpisode,
)
from .learners import (
    Backlog,
    ClassSummary,
    DeletedLearner,
    ForgottenClass,
    LearnerConfig,
    LearnerInfo,
    LearnerStatus,
    LearnerUpdate,
    OpenedStream,
    TeachResult,
    Throughput,
)
from .quality import (
    ClassFall,
    ClassQuality,
    Confusion,
    Quality,
    QualityReport,
)
from .server import (
    CorruptionEvent,
    ServerLimits,
    ServerStatus,
    TeacherStatus,
    TrainerStatus,
)
from .snapshots import (
    DeletedSnapshot,
    ImportedSnapshot,
    ImportedWeights,
    RestoredSnapshot,
    Snapshot,
)
from .statistics import (
    LayerStatistics,
    MemoryStatistics,
    RankCount,
)
from .versions import (
    MergedClasses,
    RenamedClass,
    UndoneVersion,
)

__all__ = [
    "Answer",
    "Backlog",
    "ClassFall",
    "ClassQuality",
    "ClassSummary",
    "Confusion",
    "CorruptionEvent",
    "DeletedLearner",
    "DeletedSnapshot",
    "DiscardedEpisode",
    "EpisodeClosed",
    "EpisodeDiscarded",
    "EpisodeEvent",
    "EpisodeLearned",
    "EpisodeParked",
    "EpisodeStarted",
    "EpisodeStatistics",
    "ForgottenClass",
    "ImportedSnapshot",
    "ImportedWeights",
    "LayerStatistics",
    "LearnerConfig",
    "LearnerInfo",
    "LearnerStatus",
    "LearnerUpdate",
    "MemoryStatistics",
    "MergedClasses",
    "OpenedStream",
    "ParkedEpisode",
    "Progress",
    "Quality",
    "QualityReport",
    "RankCount",
    "RenamedClass",
    "RestoredSnapshot",
    "RetriedEpisode",
    "ServerLimits",
    "ServerStatus",
    "Snapshot",
    "TeachResult",
    "Throughput",
    "TeacherStatus",
    "TrainerStatus",
    "UndoneVersion",
]
