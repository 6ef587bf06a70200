"""The learner's own stable features, for plain methods to work on: they then differ in what they make of them alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sharp_engine import Learner


def features_of(learner: Learner, x: NDArray[np.generic]) -> NDArray[np.float32]:
    """Vectors as they are; images as the learner's patch dictionary describes them: (n, values)."""
    if x.ndim == 2:
        return x.astype(np.float32)
    return x.reshape(len(x), -1).astype(np.float32) / 255.0
