"""A prediction of the default learner against its floor: the bare operations that its features and its metric need.

The floor is handed floats in the order that convolutions like best, and does for each example: one convolution with
the patch dictionary, two box filters, ReLU and a product with the grid's cells for both signs; the random features'
product, the whitening's, the axes', and two with all classes; where the network's vote has a weight, its layers'
products too. No normalisation, no score, share, distance, novelty or label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.datasets import Examples
from benchmarks.speed.timing import Comparison, in_turns
from sharp_engine import Learner

TARGET = 1.3
"""Of batches of at least `TARGET_BATCH`."""
TARGET_BATCH = 64
_NEAR = 1 << 20
"""Responses per convolution: as many as stay near the processor."""


@dataclass(frozen=True)
class AnswerTimes:
    """One kind of input and one size of batch."""

    kind: str
    batch: int
    classes: int
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "inputs": self.kind,
            "batch": self.batch,
            "classes": self.classes,
            "examples_per_second": self.batch / self.comparison.ours.wall,
            **self.comparison.to_dict(),
        }


def floor_of(learner: Learner) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """What a learner's answers cost at least, as a function of inputs as floats.

    Both products with the classes (n, classes), and what the network's layers give.
    """
    now = learner.inspect()
    assert learner.architecture is not None
    features = learner.preprocessor.shape_of_features(learner.architecture.input_shape)[0]
    dimensions = learner.feature_map.dimensions
    classes, axes = len(now.classes), max(len(now.classes) - 1, 1)

    def weights(*shape: int) -> Tensor:
        return torch.rand(*shape).to(learner.device)

    random = weights(features, dimensions - features)
    whitening, metric = weights(dimensions, dimensions), weights(dimensions, axes)
    linear, quadratic = weights(axes, classes), weights(axes, classes)
    layers = [features, *(layer.units for layer in now.layers)] if now.network_weight else []
    network = [weights(*shape) for shape in pairwise(layers)]
    dictionary, chunk = learner.preprocessor.dictionary, 1
    if dictionary is not None:
        atoms, _, side, _ = dictionary.weight.shape
        _, height, width = learner.architecture.input_shape
        chunk = max(1, _NEAR // (atoms * (height - side + 1) * (width - side + 1)))

    def describe(x: Tensor) -> Tensor:
        assert dictionary is not None and dictionary.config.grid is not None
        side, grid = dictionary.weight.shape[-1], dictionary.config.grid
        F.avg_pool2d(x, side, stride=1)
        F.avg_pool2d(x, side, stride=1)
        response = F.conv2d(x, dictionary.weight).permute(0, 2, 3, 1).flatten(1, 2)
        cells = weights(grid * grid, response.shape[1])
        signs = [cells @ F.relu(response), cells @ response.neg_().relu_()]
        return torch.cat(signs, dim=1).flatten(1)

    @torch.inference_mode()
    def floor(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = x if dictionary is None else torch.cat([describe(part) for part in x.split(chunk)])
        phi = torch.cat((s, s @ random), dim=1) if random.shape[1] else s
        z = phi @ whitening @ metric
        for weight in network:
            s = s @ weight
        return z @ linear, (z * z) @ quadratic, s

    return floor


def measure(
    learner: Learner, kind: str, sample: Examples, batches: Sequence[int], *, rounds: int, least_seconds: float
) -> Iterator[AnswerTimes]:
    """All sizes of batch, one after the other."""
    floor, classes = floor_of(learner), len(learner.inspect().classes)
    every = torch.from_numpy(sample.x)
    for batch in batches:
        x = every[torch.arange(batch) % len(every)]
        floats = x.float() / 255.0 if x.dtype == torch.uint8 else x
        if x.ndim == 4:
            floats = floats.to(memory_format=torch.channels_last)
        floats = floats.to(learner.device)
        ours, theirs = in_turns(
            lambda x=x: learner.predict(x),  # type: ignore[misc]
            lambda floats=floats: floor(floats),  # type: ignore[misc]
            rounds=rounds,
            least_seconds=least_seconds,
        )
        target = TARGET if batch >= TARGET_BATCH else None
        yield AnswerTimes(
            kind, batch, classes, Comparison(f"{kind}, batches of {batch}", "batch", ours, theirs, target)
        )
