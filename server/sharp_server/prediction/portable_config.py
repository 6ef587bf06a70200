"""The config that a snapshot carries: no path of this server leaves it, and none is needed where it is taken in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sharp_engine import LearnerConfig


def without_paths(config: LearnerConfig) -> LearnerConfig:
    """The same config with files whose content is in the snapshot by their name only."""
    architecture = config.architecture
    backbone = architecture.backbone
    if architecture.pretrained is not None:
        architecture = replace(architecture, pretrained=Path(architecture.pretrained).name)
    if backbone is not None and backbone.weights is not None and backbone.in_snapshots:
        architecture = replace(architecture, backbone=replace(backbone, weights=Path(backbone.weights).name))
    return replace(config, architecture=architecture)
