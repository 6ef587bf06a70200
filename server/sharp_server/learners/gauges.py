"""What Prometheus reads of the learners: looked up when asked for, not counted on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sharp_engine import LearnerConfig
from sharp_server.learners.registry import Registry
from sharp_server.prediction.summary import LayerSummary
from sharp_server.runtime.metrics import memory_of

_LONGEST_LABEL = 100
"""Characters of a class in the metrics."""

_GAUGES = {
    "model_version": "Version that serves.",
    "episodes_learned": "Episodes that it has learned.",
    "examples_beyond_version": "Examples that answers know beyond that version.",
    "uncounted_examples": "Durable examples that answers don't know yet.",
    "open_examples": "Examples that wait for a boundary.",
    "unlearned_bytes": "Bytes taken and not learned.",
    "lag_examples": "Examples of closed episodes not learned yet.",
    "lag_seconds": "Since the oldest of those was closed.",
    "stm_bytes": "Bytes of the short-term memory.",
    "ltm_bytes": "Bytes of the long-term memory.",
    "learn_streams": "Open Learn streams.",
    "damaged_snapshots": "Snapshots found damaged.",
}


def recruits_later(config: LearnerConfig, layer: LayerSummary) -> bool:
    """Whether a layer without idle units is a problem: not where it is frozen by design, and not where answers come
    from a learned metric, which needs no units.
    """
    return not layer.pretrained and not config.metric.enabled


class DiskGauges(Collector):
    """Gauges of the data folder's disk; whoever reads them may have to wait for it."""

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self._free_bytes = free_bytes

    def describe(self) -> list[Metric]:
        """Nothing by name: a disk need not answer before somebody asks."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now."""
        yield GaugeMetricFamily("sharp_disk_free_bytes", "Room on the data folder's disk.", self._free_bytes())


class LearnerGauges(Collector):
    """Gauges of the learners and the processes."""

    def __init__(
        self,
        learners: Registry,
        trainer_pid: Callable[[], int],
        teacher_pid: Callable[[], int],
        classes: int,
    ) -> None:
        """`classes`: how many of a learner's classes, worst first, have an accuracy of their own."""
        self._learners = learners
        self._pids = {"trainer": trainer_pid, "teacher": teacher_pid}
        self._classes = classes

    def describe(self) -> list[Metric]:
        """Nothing by name: what there is depends on the learners."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now."""
        gauges = {key: GaugeMetricFamily(f"sharp_{key}", text, labels=["learner"]) for key, text in _GAUGES.items()}
        idle = GaugeMetricFamily("sharp_idle_units", "Idle units left.", labels=["learner", "layer"])
        needed = GaugeMetricFamily(
            "sharp_idle_units_needed", "Whether later episodes recruit from the layer.", labels=["learner", "layer"]
        )
        episodes = GaugeMetricFamily("sharp_episodes", "Episodes by state.", labels=["learner", "state"])
        for served in self._learners:
            waiting, parked, model = served.backlog.waiting(), served.backlog.parked(), served.model
            memories = model.summary.memories if model.summary is not None else None
            values = {
                "model_version": model.version,
                "episodes_learned": model.episodes,
                "examples_beyond_version": model.examples_beyond_version,
                "uncounted_examples": served.uncounted_examples,
                "open_examples": served.backlog.open_examples,
                "unlearned_bytes": served.backlog.bytes,
                "lag_examples": sum(episode.examples for episode in waiting),
                "lag_seconds": max(0.0, time.time() - min(e.closed for e in waiting)) if waiting else 0.0,
                "stm_bytes": memories.stm_bytes if memories is not None else 0,
                "ltm_bytes": memories.ltm_bytes if memories is not None else 0,
                "learn_streams": served.streams,
                "damaged_snapshots": served.damaged_snapshots,
            }
            for key, value in values.items():
                gauges[key].add_metric([served.name], value)
            training = 1 if served.episode is not None else 0
            states = {
                "waiting": len(waiting) - training,
                "training": training,
                "parked": len(parked),
                "learned": model.episodes,
            }
            for state, count in states.items():
                episodes.add_metric([served.name, state], count)
            for layer in served.layers:
                idle.add_metric([served.name, layer.name], layer.idle)
                needed.add_metric([served.name, layer.name], recruits_later(served.config, layer))
        yield from gauges.values()
        yield idle
        yield needed
        yield episodes
        yield from self._quality()
        memory = GaugeMetricFamily("sharp_memory_bytes", "Memory by process.", labels=["process"])
        memory.add_metric(["front"], memory_of("self"))
        for name, find in self._pids.items():
            pid = find()
            memory.add_metric([name], memory_of(str(pid)) if pid else 0)
        yield memory

    def _quality(self) -> Iterator[Metric]:
        """How good the versions are that serve, and how sure their answers."""
        accuracy = GaugeMetricFamily(
            "sharp_heldout_accuracy", "Share of held-out examples answered right.", labels=["learner"]
        )
        examples = GaugeMetricFamily("sharp_heldout_examples", "Held-out examples.", labels=["learner"])
        fallen = GaugeMetricFamily(
            "sharp_fallen_classes", "Classes that got worse with the newest version.", labels=["learner"]
        )
        by_class = GaugeMetricFamily(
            "sharp_heldout_class_accuracy", "The same of the worst classes.", labels=["learner", "class"]
        )
        shares = HistogramMetricFamily("sharp_vote_share", "How sure answers are.", labels=["learner"])
        novelties = HistogramMetricFamily("sharp_novelty", "How novel examples are, where asked.", labels=["learner"])
        for served in self._learners:
            report = served.model.quality
            fallen.add_metric([served.name], len(report.fallen))
            if report.now is not None:
                quality = report.now.quality
                accuracy.add_metric([served.name], quality.accuracy)
                examples.add_metric([served.name], quality.examples)
                worst = reversed(quality.classes[: self._classes])  # of two that are cut to one name, the worse one
                for label, share in {str(entry.label)[:_LONGEST_LABEL]: entry.accuracy for entry in worst}.items():
                    by_class.add_metric([served.name, label], share)
            shares.add_metric([served.name], *served.answers.shares.read())
            novelties.add_metric([served.name], *served.answers.novelties.read())
        yield from (accuracy, examples, fallen, by_class, shares, novelties)
