"""A learner in figures: from the engine's inspection to plain JSON values (which the trainer sends through its pipe),
and from those to the messages of sharp.v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharp.v1 import label_pb2, learner_pb2, statistics_pb2
from sharp_engine import Label, Learner


def figures_of(learner: Learner) -> dict[str, Any]:
    """Layers, memories and classes of a learner as JSON values."""
    seen = learner.inspect()
    network = learner.network if learner.architecture is not None else None
    layers = []
    for i, layer in enumerate(seen.layers):
        assert network is not None
        pretrained = network.layers[i].pretrained
        layers.append(
            {
                "name": layer.name,
                "before_cut": i < network.cut,
                "pretrained": pretrained,
                "units": layer.units,
                "idle": layer.states["idle"],
                "training": layer.states["training"],
                "fine_tuning": layer.states["fine-tuning"],
                "frozen": layer.states["frozen"],
                "ranks": [] if pretrained else sorted(layer.ranks.items()),
                "connections": layer.connections,
                "shortfall": layer.shortfall,
                "density": layer.density,
            }
        )
    stored = {c.class_id: len(c.packed) for c in learner.stm.classes} if network is not None else {}
    classes = sorted(learner.ltm.classes, key=lambda memory: memory.class_id)
    return {
        "architecture": seen.architecture,
        "episodes": seen.episodes,
        "input_shape": list(learner.architecture.input_shape) if learner.architecture else None,
        "label_kind": learner.labels.kind,
        "layers": layers,
        "memories": {
            "stm_bytes": seen.stm_bytes,
            "stm_bytes_limit": seen.stm_budget_bytes if learner.config.memory.replayed_episodes else 0,
            "stm_entries": seen.stm_examples,
            "ltm_bytes": seen.ltm_bytes,
            "ltm_entries": seen.ltm_entries,
            "classes": len(seen.classes),
            "stm_overhead_bytes": seen.stm_overhead_bytes,
        },
        "classes": [
            [learner.labels.label(m.class_id), len(m.vectors), stored.get(m.class_id, 0), m.episode] for m in classes
        ],
    }


def layer_messages(layers: Sequence[dict[str, Any]]) -> list[statistics_pb2.LayerStatistics]:
    """Layers as messages."""
    messages = []
    for layer in layers:
        values = dict(layer)
        ranks = values.pop("ranks")
        message = statistics_pb2.LayerStatistics(**values)
        message.ranks.extend(statistics_pb2.RankCount(rank=rank, units=units) for rank, units in ranks)
        messages.append(message)
    return messages


def memory_message(memories: dict[str, int]) -> statistics_pb2.MemoryStatistics:
    """Memories as a message."""
    return statistics_pb2.MemoryStatistics(**memories)


def class_messages(classes: Sequence[Sequence[Any]]) -> list[learner_pb2.ClassSummary]:
    """Classes as messages."""
    return [
        learner_pb2.ClassSummary(label=label_message(label), ltm_entries=ltm, stm_entries=stm, last_episode=episode)
        for label, ltm, stm, episode in classes
    ]


def label_message(label: Label) -> label_pb2.Label:
    """One label."""
    return label_pb2.Label(text=label) if isinstance(label, str) else label_pb2.Label(integer=label)


def labels_message(labels: Sequence[Label]) -> label_pb2.Labels:
    """Labels of one kind; none: an empty message."""
    if not labels:
        return label_pb2.Labels()
    if isinstance(labels[0], str):
        return label_pb2.Labels(texts=label_pb2.TextLabels(values=labels))  # type: ignore[arg-type]
    return label_pb2.Labels(integers=label_pb2.IntegerLabels(values=labels))  # type: ignore[arg-type]
