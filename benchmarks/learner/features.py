"""The learner's own stable features, for plain methods to work on: they then differ only in what they make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sharp_engine import Learner

_CHUNK = 256


def features_of(learner: Learner, x: NDArray[Any]) -> NDArray[np.float32]:
    """Vectors as they came; images as the learner's patch dictionary describes them: (n, values)."""
    if x.ndim == 2:
        return x.astype(np.float32)
    parts = [learner.preprocessor(part).cpu() for part in torch.from_numpy(x).split(_CHUNK)]
    features: NDArray[np.float32] = torch.cat(parts).flatten(1).numpy()
    return features
