"""SHARP as a library: a classifier that takes new classes as they come and keeps the old ones.

Sparse networks with ranked units, a short-term memory of quantised hidden activations, and a long-term memory that
answers by nearest memories, in a metric that keeps learning. Start with `Learner(preset("default"))`.
"""

from sharp_engine.config import (
    ArchitectureConfig,
    BackboneConfig,
    DictionaryConfig,
    LayerConfig,
    LearnerConfig,
    MemoryConfig,
    MetricConfig,
    PredictionConfig,
    StreamConfig,
    TrainingConfig,
)
from sharp_engine.errors import (
    Cancelled,
    ConfigError,
    DtypeError,
    EmptyEpisodeError,
    EpisodeFailedError,
    EpisodeStateError,
    InputError,
    LabelError,
    NonFiniteError,
    NonFiniteLossError,
    NoPositivePairError,
    NothingLearnedError,
    ShapeError,
    ShardingError,
    SharpError,
    SilentNetworkError,
    SnapshotError,
    SnapshotVersionError,
    UnknownClassError,
)
from sharp_engine.inspection import Inspection, LayerInspection
from sharp_engine.labels import Label
from sharp_engine.learner import Learner
from sharp_engine.prediction.answers import ClassVote, NearMemory, Prediction, Predictions, Predictor
from sharp_engine.prediction.quality import ClassQuality, Confusion, Quality
from sharp_engine.presets import PRESETS, preset
from sharp_engine.stream.segmenter import Segmenter
from sharp_engine.training.pretraining import PretrainReport, pretrain
from sharp_engine.training.progress import EpisodeReport, Observer, Progress, TeachReport

__all__ = [
    "PRESETS",
    "ArchitectureConfig",
    "BackboneConfig",
    "Cancelled",
    "ClassQuality",
    "ClassVote",
    "ConfigError",
    "Confusion",
    "DictionaryConfig",
    "DtypeError",
    "EmptyEpisodeError",
    "EpisodeFailedError",
    "EpisodeReport",
    "EpisodeStateError",
    "InputError",
    "Inspection",
    "Label",
    "LabelError",
    "LayerConfig",
    "LayerInspection",
    "Learner",
    "LearnerConfig",
    "MemoryConfig",
    "MetricConfig",
    "NearMemory",
    "NoPositivePairError",
    "NonFiniteError",
    "NonFiniteLossError",
    "NothingLearnedError",
    "Observer",
    "Prediction",
    "PredictionConfig",
    "Predictions",
    "Predictor",
    "PretrainReport",
    "Progress",
    "Quality",
    "Segmenter",
    "ShapeError",
    "ShardingError",
    "SharpError",
    "SilentNetworkError",
    "SnapshotError",
    "SnapshotVersionError",
    "StreamConfig",
    "TeachReport",
    "TrainingConfig",
    "UnknownClassError",
    "preset",
    "pretrain",
]
