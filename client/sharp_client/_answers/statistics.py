"""The inside of a network and of its memories, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from sharp.v1 import statistics_pb2

from .decoding import Answer


@dataclass(frozen=True, repr=False)
class RankCount(Answer, message=statistics_pb2.RankCount):
    """How many units of a layer have one rank."""

    rank: int = 0
    """0: idle, 1: chosen for the episode being learned, 2 and more: episodes ago, plus one."""
    units: int = 0
    """Units of that rank."""


@dataclass(frozen=True, repr=False)
class LayerStatistics(Answer, message=statistics_pb2.LayerStatistics):
    """One layer of a network. Each of its units is idle, in training, fine-tuned or frozen."""

    name: str = ""
    """Its name, the same all its life."""
    before_cut: bool = False
    """Whether it lies before the replay cut."""
    pretrained: bool = False
    """Whether it is part of a pretrained backbone, which never changes."""
    units: int = 0
    """Units in all."""
    idle: int = 0
    """Units left for what is still to come."""
    training: int = 0
    """Units being trained on the current episode."""
    fine_tuning: int = 0
    """Units that replay still adjusts."""
    frozen: int = 0
    """Units that will never change again."""
    ranks: tuple[RankCount, ...] = ()
    """Units by rank, in rising order of rank."""
    connections: int = 0
    """Connections that exist now."""
    shortfall: int = 0
    """Connections that growing could not place yet."""
    density: float = 0.0
    """Share of all possible connections that exist, 0 to 1."""


@dataclass(frozen=True, repr=False)
class MemoryStatistics(Answer, message=statistics_pb2.MemoryStatistics):
    """The short-term memory (STM, for replay) and the long-term memory (LTM, for prediction)."""

    stm_bytes: int = 0
    """Bytes of the values in the STM."""
    stm_bytes_limit: int = 0
    """Bytes that these may take at most between two episodes. 0: no replay."""
    stm_entries: int = 0
    """Examples in the STM."""
    ltm_bytes: int = 0
    """Bytes of the LTM."""
    ltm_entries: int = 0
    """Representations in the LTM."""
    classes: int = 0
    """Classes in the LTM: what a prediction can answer."""
    stm_overhead_bytes: int = 0
    """Bytes of the STM on top of `stm_bytes`, for scales."""
