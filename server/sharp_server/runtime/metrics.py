"""Figures for Prometheus. What can be read from the registry is read when asked for, not counted on the way."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from sharp_server.learners.served_learner import Registry

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """All counters and histograms of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("sharp_requests", "Calls by method and code.", ["method", "code"], registry=registry)
        self.queue_seconds = Histogram(
            "sharp_prediction_queue_seconds", "Time that predictions waited.", buckets=_SECONDS, registry=registry
        )
        self.compute_seconds = Histogram(
            "sharp_compute_seconds", "Time that batches of predictions took.", buckets=_SECONDS, registry=registry
        )
        self.batch_examples = Histogram(
            "sharp_batch_examples",
            "Examples computed together.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
            registry=registry,
        )
        self.examples_ingested = Counter("sharp_examples_ingested", "Examples made durable.", registry=registry)
        self.examples_learned = Counter("sharp_examples_learned", "Examples of learned episodes.", registry=registry)
        self.trainer_restarts = Counter("sharp_trainer_restarts", "Trainers that died.", registry=registry)
        self.training_failures = Counter(
            "sharp_training_failures", "Failed tries by reason.", ["reason"], registry=registry
        )
        self.damages = Counter("sharp_damaged_records", "Things found damaged on disk.", registry=registry)
        self.discarded = Counter("sharp_discarded_episodes", "Episodes given up.", registry=registry)

    def watch(self, learners: Registry, trainer_pid: Callable[[], int], free_bytes: Callable[[], int]) -> None:
        """Read gauges from the learners, the trainer and the disk whenever someone asks."""
        self.registry.register(_Gauges(learners, trainer_pid, free_bytes))

    def text(self) -> bytes:
        """Everything, in Prometheus's own format."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    def __init__(self, learners: Registry, trainer_pid: Callable[[], int], free_bytes: Callable[[], int]) -> None:
        self._learners, self._trainer_pid, self._free_bytes = learners, trainer_pid, free_bytes

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        names = {
            "version": "Version that serves.",
            "episodes_learned": "Episodes that it has learned.",
            "unlearned_bytes": "Bytes taken and not learned.",
            "lag_examples": "Examples of closed episodes not learned yet.",
            "lag_seconds": "Since the oldest of those was closed.",
            "stm_bytes": "Bytes of the short-term memory.",
            "ltm_bytes": "Bytes of the long-term memory.",
            "streams": "Open Learn streams.",
            "damaged_snapshots": "Snapshots found damaged.",
        }
        gauges = {key: GaugeMetricFamily(f"sharp_{key}", text, labels=["learner"]) for key, text in names.items()}
        idle = GaugeMetricFamily("sharp_idle_units", "Idle units left.", labels=["learner", "layer"])
        episodes = GaugeMetricFamily("sharp_episodes", "Episodes by state.", labels=["learner", "state"])
        for served in self._learners:
            status = served.status(1)
            backlog, who = status.backlog, [served.name]
            gauges["version"].add_metric(who, status.model_version)
            gauges["episodes_learned"].add_metric(who, status.episodes_learned)
            gauges["unlearned_bytes"].add_metric(who, backlog.bytes)
            gauges["lag_examples"].add_metric(who, backlog.lag_examples)
            gauges["lag_seconds"].add_metric(who, backlog.lag.seconds + backlog.lag.nanos / 1e9)
            gauges["stm_bytes"].add_metric(who, status.memories.stm_bytes)
            gauges["ltm_bytes"].add_metric(who, status.memories.ltm_bytes)
            gauges["streams"].add_metric(who, backlog.streams)
            gauges["damaged_snapshots"].add_metric(who, status.damaged_snapshots)
            training = 1 if status.training_episode else 0
            episodes.add_metric([served.name, "waiting"], backlog.episodes_waiting - training)
            episodes.add_metric([served.name, "training"], training)
            episodes.add_metric([served.name, "parked"], backlog.episodes_parked)
            episodes.add_metric([served.name, "learned"], status.episodes_learned)
            for layer in status.layers:
                idle.add_metric([served.name, layer.name], layer.idle)
        yield from gauges.values()
        yield idle
        yield episodes
        memory = GaugeMetricFamily("sharp_memory_bytes", "Memory by process.", labels=["process"])
        memory.add_metric(["front"], memory_of("self"))
        pid = self._trainer_pid()
        memory.add_metric(["trainer"], memory_of(str(pid)) if pid else 0)
        yield memory
        yield GaugeMetricFamily("sharp_disk_free_bytes", "Room on the data folder's disk.", self._free_bytes())


def memory_of(process: str) -> int:
    """Resident bytes of a process; 0: not known."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if process == "self" else 0
