"""How `sharp learn` makes a learner for images: size, resizing, backbone and normalisation, all of it remembered with
the learner, so that predictions need none of these options again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from sharp_cli.data import LabelledData
from sharp_client import (
    Client,
    LearnerConfig,
    LearnerNotFoundError,
    LearnStream,
    RoleMissingError,
    WeightsMalformedError,
    WeightsTooLargeError,
)

LARGEST_SMALL_IMAGE = 64
"""Side in pixels up to which images are learned without a backbone."""

BACKBONE_SIDE = 224
"""Side in pixels that torchvision's models were pretrained with."""

LAYER = "avgpool"
"""The layer whose answers are taken, where none is named."""

IMAGENET = {"architecture.mean": (0.485, 0.456, 0.406), "architecture.std": (0.229, 0.224, 0.225)}
"""What torchvision's weights expect of channels that are scaled to 0 to 1."""


@dataclass(frozen=True)
class ImageOptions:
    """What was asked for."""

    resize: tuple[int, int] | None = None
    """Height and width."""
    backbone: str | None = None
    """Model and layer: `resnet18` or `resnet18:layer3`."""
    weights: str | None = None
    """A file here, which the server is given; or the name of one that it has; or one of torchvision's names."""

    @classmethod
    def read(cls, resize: str | None, backbone: str | None, weights: str | None) -> ImageOptions:
        """Read the options as they were typed."""
        size = None
        if resize is not None:
            sides = re.fullmatch(r"(\d+)(?:[x×](\d+))?", resize.strip())
            size = (int(sides[1]), int(sides[2] or sides[1])) if sides else (0, 0)
            if not min(size):
                raise typer.BadParameter(f"{resize!r} is no size such as 64 or 48x64", param_hint="--resize")
        if (backbone is None) != (weights is None):
            raise typer.BadParameter(
                "--backbone and --weights come together: a model such as resnet18, and a file of its weights, the name "
                "of one in the server's folder of weights, or one of torchvision's names such as IMAGENET1K_V1",
                param_hint="--weights" if weights is None else "--backbone",
            )
        if weights is not None and Path(weights).name != weights and not Path(weights).is_file():
            raise typer.BadParameter(f"there is no file {weights}", param_hint="--weights")
        return cls(size, backbone, weights)

    @property
    def weights_here(self) -> Path | None:
        """The file of weights, if it is on this machine."""
        return Path(self.weights) if self.weights is not None and Path(self.weights).is_file() else None

    def with_weights_on_server(self, client: Client) -> ImageOptions:
        """The same, with a file that is here given to the server, unless it has it, and named as there."""
        here = self.weights_here
        if here is None:
            return self
        try:
            return replace(self, weights=client.import_weights(here).name)
        except RoleMissingError as error:
            raise ValueError(
                f"{here} can't be sent to the server: {error}. With a token for admin (--token-file) it can; or let an "
                "operator put it into the server's folder of weights, and give its name there"
            ) from None
        except (WeightsMalformedError, WeightsTooLargeError) as error:
            raise ValueError(f"{here}: {error}") from None

    def config(self, data: LabelledData) -> LearnerConfig | None:
        """The configuration of a new learner. None: the first batch decides everything."""
        if self.resize is None and self.backbone is None:
            return None
        if not data.facts and (self.resize is not None or data.x.ndim < 3):
            raise typer.BadParameter("this is for folders of images only", param_hint="--resize or --backbone")
        settings: dict[str, Any] = {}
        if self.backbone is not None:
            model, _, layer = self.backbone.partition(":")
            settings = {
                "architecture.kind": "backbone",
                "architecture.backbone": {"model": model, "layer": layer or LAYER, "weights": self.weights},
                **IMAGENET,
            }
        if not data.facts:
            return LearnerConfig(overrides=_in_json(settings))
        height, width = self.resize or (BACKBONE_SIDE, BACKBONE_SIDE)
        channels = 3 if self.backbone is not None or not all(fact.grey for fact in data.facts) else 1
        settings["architecture.resize"] = True
        return LearnerConfig(overrides=_in_json(settings), input_shape=(channels, height, width))


def _in_json(settings: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}


def open_stream(
    client: Client, name: str, data: LabelledData, config: LearnerConfig | None, create: bool, **options: Any
) -> LearnStream:
    """Open a stream to a learner, which is made as `config` says if it is missing.

    One that is there keeps its own number of channels; all else must be as `config` says. Images that no new learner
    would take are refused before one is made.
    """
    problem = None if config is not None or not data.facts else _needs_options(data)
    if config is None and problem is None:
        return client.learn(name, create=create, **options)
    try:
        stream = client.learn(name, create=False, **options)
    except LearnerNotFoundError:
        if not create:
            raise
        if problem is not None:
            raise ValueError(problem) from None
        return client.learn(name, create=config or True, **options)
    shape = stream.opened.input_shape
    if not shape and problem is not None:
        stream.cancel()
        raise ValueError(problem)
    if config is None:
        return stream
    stream.cancel()
    if len(shape) == 3 and config.input_shape:
        config = replace(config, input_shape=(shape[0], *config.input_shape[1:]))
    return client.learn(name, create=config, **options)


def _needs_options(data: LabelledData) -> str | None:
    """Why images can't be learned as they are by a new learner."""
    sizes = {fact.size for fact in data.facts}
    largest = max(max(size) for size in sizes)
    if len(sizes) > 1:
        least, most = min(sizes, key=_area), max(sizes, key=_area)
        found = f"the images have {len(sizes):,} sizes, from {least[0]}×{least[1]} to {most[0]}×{most[1]}"
    elif largest > LARGEST_SMALL_IMAGE:
        height, width = next(iter(sizes))
        found = f"the images are {height}×{width}, larger than {LARGEST_SMALL_IMAGE}×{LARGEST_SMALL_IMAGE}"
    else:
        return None
    small = f"--resize {min(largest, LARGEST_SMALL_IMAGE)}"
    return f"{found}: give {small}, or for photographs --backbone resnet18 --weights FILE"


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]
