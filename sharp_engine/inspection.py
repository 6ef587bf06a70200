"""What a learner looks like from outside: one value, cheap to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sharp_engine.labels import Label
from sharp_engine.network.state import Layer, UnitState, rank_counts
from sharp_engine.prediction.quality import Quality


@dataclass(frozen=True)
class LayerInspection:
    """One layer in figures."""

    name: str
    units: int
    ranks: dict[int, int]
    """How many units have which rank."""
    states: dict[UnitState, int]
    """How many units are idle, training, fine-tuning, frozen."""
    connections: int
    """How many exist now; with `shortfall`, a constant of the run."""
    density: float
    """Existing connections over possible ones."""
    shortfall: int
    """Connections that could not be placed yet."""


@dataclass(frozen=True)
class Inspection:
    """A learner in figures."""

    architecture: str
    """What was picked, in one line; empty before the first batch."""
    device: str
    episodes: int
    """Episodes learned."""
    classes: tuple[Label, ...]
    """Classes that predictions can name."""
    layers: tuple[LayerInspection, ...]
    stm_bytes: int
    """Bytes of the stored values; within the budget between episodes."""
    stm_overhead_bytes: int
    """Bytes of the scales and offsets that describe them."""
    stm_budget_bytes: int
    stm_examples: int
    ltm_bytes: int
    """Of the network's long-term memory: representations, masks and references."""
    ltm_entries: int
    semantic_bytes: int
    """Counts, means and scatter of the learned metric."""
    episodic_bytes: int
    """Representatives and corrections."""
    features_bytes: int
    """What was fitted to the first examples: the patch dictionary and the scale of features."""
    examples_per_class: dict[Label, int]
    """With a learned metric: how many examples of each class are known."""
    quality: Quality | None
    """With a learned metric: how good answers are on representatives, each left out in turn; absent while they are less
    than twenty."""
    network_weight: float | None
    """With a learned metric: weight of the network's vote; absent before it was fitted."""
    network_resting: bool
    """Whether the network has stopped learning because its vote added nothing."""
    episodes_left: int | None
    """For how many more episodes the scarcest layer has idle units, at the present rate; absent before the network
    learned one."""
    pending_examples: int
    """Observed, not yet learned."""
    phases_done: int | None
    """Of the episode in progress; absent if none is."""


def episodes_left(layers: Sequence[Layer], learned: int) -> dict[str, int]:
    """By layer, for how many more episodes it has idle units, if each recruits as those so far did on average.

    Layers that are pretrained, or of which nothing is recruited yet, are left out.
    """
    left = {}
    for layer in layers:
        idle = int((layer.ranks == 0).sum())
        recruited = layer.units - idle
        if not layer.pretrained and learned and recruited:
            left[layer.name] = idle * learned // recruited
    return left


def inspect_layer(layer: Layer) -> LayerInspection:
    """Figures of one layer."""
    existing = int(layer.mask.sum())
    return LayerInspection(
        name=layer.name,
        units=layer.units,
        ranks=rank_counts(layer.ranks),
        states={state: int(mask.sum()) for state, mask in layer.state_masks().items()},
        connections=existing,
        density=existing / layer.mask.numel(),
        shortfall=layer.shortfall,
    )
