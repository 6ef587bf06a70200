"""What a learner looks like from outside: one value, cheap to ask for."""

from __future__ import annotations

from dataclasses import dataclass

from sharp_engine.labels import Label
from sharp_engine.learning.state import LearnerState
from sharp_engine.network.state import Layer, UnitState, rank_counts
from sharp_engine.prediction.quality import Quality
from sharp_engine.training.scarcity import episodes_left


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
    """Bytes of the scales that describe them."""
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


def inspect(learner: LearnerState) -> Inspection:
    """A learner in figures."""
    built, known, label = learner.architecture is not None, learner.knowledge, learner.labels.label
    named = tuple(known.semantic.examples) if known else tuple(memory.class_id for memory in learner.ltm.classes)
    left = episodes_left(learner.network.layers, learner.network_episodes) if built else {}
    return Inspection(
        architecture=learner.architecture.describe() if learner.architecture is not None else "",
        device=str(learner.device),
        episodes=learner.episodes,
        classes=tuple(label(class_id) for class_id in named),
        layers=tuple(_inspect_layer(layer) for layer in learner.network.layers) if built else (),
        stm_bytes=learner.stm.nbytes if built else 0,
        stm_overhead_bytes=learner.stm.overhead if built else 0,
        stm_budget_bytes=learner.stm.budget if built else 0,
        stm_examples=learner.stm.examples if built else 0,
        ltm_bytes=learner.ltm.nbytes,
        ltm_entries=learner.ltm.entries,
        semantic_bytes=known.semantic.nbytes if known else 0,
        episodic_bytes=known.episodic.nbytes if known else 0,
        features_bytes=learner.preprocessor.nbytes if built else 0,
        examples_per_class={label(class_id): n for class_id, n in known.semantic.examples.items()} if known else {},
        quality=quality(learner),
        network_weight=known.calibration.weight if known else None,
        network_resting=learner.network_resting,
        episodes_left=min(left.values(), default=None),
        pending_examples=learner.pending_examples,
        phases_done=None if learner.running is None else learner.running.phases_done,
    )


def quality(learner: LearnerState) -> Quality | None:
    """How good a learner's answers are, where that was measured."""
    measured = learner.knowledge.calibration.quality if learner.knowledge is not None else None
    return None if measured is None else measured.named(learner.labels.label)


def _inspect_layer(layer: Layer) -> LayerInspection:
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
