"""Counters and histograms for Prometheus. Gauges are read by collectors of whoever knows them."""

from __future__ import annotations

import asyncio
import resource

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.registry import Collector

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """All counters and histograms of one server."""

    def __init__(self) -> None:
        # They would be a series beside every series, to say when it began: with the process, all of them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._blocking = CollectorRegistry()
        """Of collectors that may wait for a disk."""
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
        self.examples_taught = Counter("sharp_examples_taught", "Examples of lessons made durable.", registry=registry)
        self.examples_learned = Counter("sharp_examples_learned", "Examples of learned episodes.", registry=registry)
        self.trainer_restarts = Counter("sharp_trainer_restarts", "Trainers that died.", registry=registry)
        self.teacher_restarts = Counter("sharp_teacher_restarts", "Teachers that died.", registry=registry)
        self.training_failures = Counter(
            "sharp_training_failures", "Failed tries by reason.", ["reason"], registry=registry
        )
        self.corruption_events = Counter("sharp_corruption_events", "Things found damaged on disk.", registry=registry)
        self.object_store_failures = Counter(
            "sharp_object_store_failures", "Calls of the object store that did not get through.", registry=registry
        )
        self.discarded = Counter("sharp_discarded_episodes", "Episodes given up.", registry=registry)

    def watch(self, collector: Collector, blocks: bool = False) -> None:
        """Read gauges from somebody whenever someone asks: on the event loop, or in a thread if that `blocks`."""
        (self._blocking if blocks else self.registry).register(collector)

    async def text(self) -> bytes:
        """Everything, in Prometheus's own format."""
        return generate_latest(self.registry) + await asyncio.to_thread(generate_latest, self._blocking)


def memory_of(process: str) -> int:
    """Resident bytes of a process; 0: not known."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if process == "self" else 0
