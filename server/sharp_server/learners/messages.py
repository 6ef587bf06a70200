"""Plain values as messages of sharp.v1: labels, moments, layers, memories, classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sharp.v1 import label_pb2, learner_pb2, statistics_pb2
from sharp_engine import Label
from sharp_server.prediction.summary import ClassSummary, LayerSummary, MemorySummary


def timestamp(seconds: float) -> Timestamp:
    """A moment by the server's clock."""
    whole = int(seconds)
    return Timestamp(seconds=whole, nanos=int((seconds - whole) * 1e9))


def duration(seconds: float) -> Duration:
    """A span of time."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


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


def layer_messages(layers: Iterable[LayerSummary]) -> list[statistics_pb2.LayerStatistics]:
    """Layers as messages."""
    messages = []
    for layer in layers:
        values = asdict(layer)
        values["ranks"] = [statistics_pb2.RankCount(rank=rank, units=units) for rank, units in layer.ranks]
        messages.append(statistics_pb2.LayerStatistics(**values))
    return messages


def memory_message(memories: MemorySummary) -> statistics_pb2.MemoryStatistics:
    """Memories as a message."""
    return statistics_pb2.MemoryStatistics(**asdict(memories))


def class_messages(classes: Iterable[ClassSummary]) -> list[learner_pb2.ClassSummary]:
    """Classes as messages."""
    return [
        learner_pb2.ClassSummary(
            label=label_message(entry.label),
            ltm_entries=entry.ltm_entries,
            stm_entries=entry.stm_entries,
            last_episode=entry.last_episode,
            examples=entry.examples,
        )
        for entry in classes
    ]
