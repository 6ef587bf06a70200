"""What stands before the first layer: normalisation, then a frozen backbone, a patch dictionary, or nothing.

It has no ranks and never learns by gradients. Where a learner has a metric, what it makes of an example never changes
once it is fitted to the first examples: these are the stable features that long-term memory compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sharp_engine.config import DictionaryConfig
from sharp_engine.device import upload
from sharp_engine.network.architecture import Normaliser
from sharp_engine.network.backbone import feature_shape
from sharp_engine.network.dictionary import PatchDictionary, feature_count, learn_dictionary
from sharp_engine.network.features import Scale, learn_scale

_CHUNK = 128
"""Examples per pass while fitting."""

_SCALE_EXAMPLES = 4096
"""Most examples that a scale is fitted on."""

_MOST_FEATURES = 2500
"""A backbone's images are pooled to a grid that has no more features than this, where it can be."""


@dataclass(frozen=True)
class Preprocessor:
    """Turns examples as they come into what the first layer sees. A value: fitting gives a new one."""

    normaliser: Normaliser
    device: torch.device
    backbone: nn.Module | None = None
    dictionary_config: DictionaryConfig | None = None
    """For images learned from scratch."""
    stable: bool = False
    """Whether features are to be stable: scaled once, and flat."""
    dictionary: PatchDictionary | None = None
    scale: Scale | None = None

    @property
    def ready(self) -> bool:
        """Whether everything is there that examples need on their way in."""
        return not self.stable or self.scale is not None

    @property
    def computes(self) -> bool:
        """Whether features cost more than a look at the example, so that an episode should compute them once."""
        return self.backbone is not None or self.stable

    @property
    def nbytes(self) -> int:
        """Bytes of what was fitted."""
        scale = () if self.scale is None else (self.scale.mean, self.scale.deviation)
        return sum(t.numel() * t.element_size() for t in scale) + (self.dictionary.nbytes if self.dictionary else 0)

    def shape_of_features(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what the first layer sees of one example."""
        shape = input_shape
        if self.backbone is not None:
            shape = feature_shape(self.backbone, input_shape, self.device)
        if not self.stable:
            return shape
        if self.dictionary_config is not None:
            return (feature_count(self.dictionary_config, input_shape[0]),)
        return (shape[0],) if len(shape) == 1 else (shape[0] * _pooled_side(shape) ** 2,)

    @torch.no_grad()
    def fitted(self, x: Tensor, generator: torch.Generator, earlier: Tensor | None = None) -> Preprocessor:
        """One that is ready, made from the first examples x (n, *input shape), and from features of `earlier` ones."""
        with_dictionary = self
        if self.dictionary_config is not None:
            images = torch.cat([self._normalised(part) for part in x.split(_CHUNK)])
            with_dictionary = replace(self, dictionary=learn_dictionary(images, self.dictionary_config, generator))
        sample = torch.randperm(len(x), generator=generator)[:_SCALE_EXAMPLES]
        features = with_dictionary.unscaled(x[sample])
        if earlier is not None:
            features = torch.cat((earlier, features))
        return with_dictionary.scaled_by(features)

    def scaled_by(self, features: Tensor) -> Preprocessor:
        """One that is ready, with the scale of features (n, features) as they are before it."""
        return replace(self, scale=learn_scale(features))

    @torch.no_grad()
    def unscaled(self, x: Tensor) -> Tensor:
        """Features of examples x (n, *input shape) before the scale: (n, *feature shape)."""
        return torch.cat([self._features(part) for part in x.split(_CHUNK)])

    def unfitted(self) -> Preprocessor:
        """As it was before the first examples."""
        return replace(self, dictionary=None, scale=None)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Features of a batch: (n, *feature shape), float32, on the learner's device, images in channels-last order."""
        features = self._features(x)
        return features if self.scale is None else self.scale(features)

    def _normalised(self, x: Tensor) -> Tensor:
        # CPUs pool images in channels-last order several times faster. A single channel is in either order, so
        # convolutions would keep the slower one if its strides did not say so.
        x = self.normaliser(upload(x, self.device))
        return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x

    def _features(self, x: Tensor) -> Tensor:
        x = self._normalised(x)
        if self.dictionary is not None:
            return self.dictionary(x)
        if self.backbone is not None:
            x = self.backbone(x)
        if self.stable and x.ndim == 4:
            x = F.adaptive_avg_pool2d(x, _pooled_side(tuple(x.shape[1:]))).flatten(1)
        return x


def _pooled_side(shape: tuple[int, ...]) -> int:
    """Side of the grid that images (channels, height, width) are pooled to."""
    channels, height, width = shape
    side = min(height, width)
    while side > 1 and channels * side**2 > _MOST_FEATURES:
        side -= 1
    return side
