"""A learner in numbers: plain values that status, statistics and metrics are made of, and that go through the pipe.

Computed once per version, where the version is made. It never holds an example or a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharp_engine import Label, Learner


@dataclass(frozen=True)
class LayerSummary:
    """One layer: how its units are used."""

    name: str
    before_cut: bool
    pretrained: bool
    units: int
    idle: int
    training: int
    fine_tuning: int
    frozen: int
    ranks: tuple[tuple[int, int], ...]
    """(rank, units), by rank."""
    connections: int
    shortfall: int
    density: float


@dataclass(frozen=True)
class MemorySummary:
    """Both memories."""

    stm_bytes: int
    stm_bytes_limit: int
    stm_entries: int
    ltm_bytes: int
    ltm_entries: int
    classes: int
    stm_overhead_bytes: int


@dataclass(frozen=True)
class ClassSummary:
    """One class that answers can name."""

    label: Label
    ltm_entries: int
    stm_entries: int
    last_episode: int
    examples: int = 0
    """That were learned; 0: not counted, without a learned metric."""


@dataclass(frozen=True)
class Summary:
    """The whole learner."""

    architecture: str
    episodes: int
    input_shape: tuple[int, ...] | None
    label_kind: str | None
    layers: tuple[LayerSummary, ...]
    memories: MemorySummary
    classes: tuple[ClassSummary, ...]

    @property
    def labels(self) -> list[Label]:
        """The classes that answers can name."""
        return [entry.label for entry in self.classes]


def summarize_layers(learner: Learner) -> tuple[LayerSummary, ...]:
    """The layers of a learner; none before its network is built."""
    if learner.architecture is None:
        return ()
    network, layers = learner.network, []
    for i, layer in enumerate(learner.inspect().layers):
        pretrained = network.layers[i].pretrained
        layers.append(
            LayerSummary(
                name=layer.name,
                before_cut=i < network.cut,
                pretrained=pretrained,
                units=layer.units,
                idle=layer.states["idle"],
                training=layer.states["training"],
                fine_tuning=layer.states["fine-tuning"],
                frozen=layer.states["frozen"],
                ranks=() if pretrained else tuple(sorted(layer.ranks.items())),
                connections=layer.connections,
                shortfall=layer.shortfall,
                density=layer.density,
            )
        )
    return tuple(layers)


def summarize(learner: Learner) -> Summary:
    """A learner in numbers."""
    seen, architecture = learner.inspect(), learner.architecture
    stored = {c.class_id: len(c.packed) for c in learner.stm.classes} if architecture is not None else {}
    voting = {c.class_id: (len(c.vectors), c.episode) for c in learner.ltm.classes}
    known = learner.knowledge
    single = {c.class_id: (len(c.features), int(c.episodes.max())) for c in known.episodic.classes} if known else {}
    class_ids = sorted(known.class_ids if known else voting)
    return Summary(
        architecture=seen.architecture,
        episodes=seen.episodes,
        input_shape=tuple(architecture.input_shape) if architecture is not None else None,
        label_kind=learner.labels.kind,
        layers=summarize_layers(learner),
        memories=MemorySummary(
            stm_bytes=seen.stm_bytes,
            stm_bytes_limit=seen.stm_budget_bytes if learner.config.memory.replayed_episodes else 0,
            stm_entries=seen.stm_examples,
            ltm_bytes=seen.ltm_bytes + seen.semantic_bytes + seen.episodic_bytes,
            ltm_entries=seen.ltm_entries + sum(count for count, _ in single.values()),
            classes=len(seen.classes),
            stm_overhead_bytes=seen.stm_overhead_bytes,
        ),
        classes=tuple(
            ClassSummary(
                learner.labels.label(class_id),
                voting.get(class_id, (0, 0))[0] + single.get(class_id, (0, 0))[0],
                stored.get(class_id, 0),
                max(voting.get(class_id, (0, 0))[1], single.get(class_id, (0, 0))[1]),
                seen.examples_per_class.get(learner.labels.label(class_id), 0),
            )
            for class_id in class_ids
        ),
    )
