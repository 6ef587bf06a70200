"""What stands before the first layer: normalisation and, where there is one, a frozen backbone.

The preprocessor has no ranks and never learns. What it makes of an example never changes, so an episode asks it once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sharp_engine.network.architecture import Normaliser


class Preprocessor:
    """Turns examples as they come into what the first layer sees."""

    def __init__(self, normaliser: Normaliser, device: torch.device, backbone: nn.Module | None = None) -> None:
        self._normaliser = normaliser
        self._device = device
        self.backbone = backbone

    def __call__(self, x: Tensor) -> Tensor:
        """Features of a batch: (n, *feature shape), float32, on the learner's device, images in channels-last order.

        CPUs pool images in that order several times faster. A single channel is in either order, so convolutions would
        keep the slower one if its strides did not say so.
        """
        x = self._normaliser(x.to(self._device, non_blocking=True))
        if x.ndim == 4:
            x = x.to(memory_format=torch.channels_last)
        if self.backbone is None:
            return x
        with torch.no_grad():
            features: Tensor = self.backbone(x)
        return features
