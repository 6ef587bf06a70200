"""What one predictor hands on to the next as it is: whoever sends predictors elsewhere sends these once.

All of it is immutable, so it may be told by identity whether the other side has it.
"""

from __future__ import annotations

from torch import Tensor

from sharp_engine.memory.episodic import EpisodicMemory, Representatives
from sharp_engine.network.features import FeatureMap
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.prediction.calibration import Calibration
from sharp_engine.prediction.learned_metric import Projection
from sharp_engine.prediction.metric import Frame, Whitening
from sharp_engine.prediction.vote import VotePredictor

LASTING: tuple[type, ...] = (
    Tensor,
    Preprocessor,
    FeatureMap,
    EpisodicMemory,
    Representatives,
    Calibration,
    Whitening,
    Frame,
    Projection,
    VotePredictor,
)
