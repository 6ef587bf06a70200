"""Predictions per second: single images beside an empty gRPC service, large messages beside the engine itself."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from benchmarks.serving.bench import LEARNER, Bench
from benchmarks.serving.comparison import Measured, Throughput, in_turns
from benchmarks.serving.options import MESSAGES_TARGET, REQUESTS_TARGET
from benchmarks.serving.processes import EmptyService, MeasuredServer, on_cores
from devtools.process_stats import cpu_seconds
from sharp_engine import Learner


def single_images(bench: Bench) -> Throughput:
    """Requests per second with many under way, and the share of what an empty service reaches."""
    sizes = bench.options.sizes
    failures = 0

    def measure(asked: MeasuredServer | EmptyService) -> Measured:
        nonlocal failures
        before = cpu_seconds(asked.pid)
        found = bench.ask(asked.address, in_flight=sizes.in_flight)
        spent, answered = cpu_seconds(asked.pid) - before, len(found["latencies"])
        failures += sum(found["failures"].values())
        return Measured(answered / found["seconds"], spent / answered)

    bench.ask(bench.server.address, in_flight=sizes.in_flight)  # warms up
    ratios: list[float] = []
    ours, ceiling, ratio, cpu_ratio = in_turns(
        lambda: measure(bench.server), lambda: measure(bench.empty), sizes.rounds, ratios
    )
    with EmptyService(bench.folder, bench.cores, "--together") as bursts:
        strict: list[float] = []
        in_turns(lambda: measure(bench.server), lambda: measure(bursts), sizes.rounds, strict)
    name = f"1-image requests, {sizes.in_flight} in flight"
    return Throughput(
        name,
        "requests/s",
        "empty gRPC service",
        *(ours, ceiling, ratio, cpu_ratio, REQUESTS_TARGET, failures),
        note=f"{statistics.median(strict):.2f} of an empty service that answers in bursts, as ours does",
        ratios=ratios,
    )


def messages(bench: Bench) -> Throughput:
    """Examples per second in large messages, and the share of what the engine reaches on the front's core."""
    sizes, seconds = bench.options.sizes, bench.options.seconds
    failures, each = 0, sizes.message_examples
    torch.set_num_threads(1)
    file = bench.folder / "measured.sharp"
    bench.client.export_snapshot(LEARNER, file)
    predictor = Learner.load(file, device="cpu").predictor
    x = torch.from_numpy(np.resize(bench.images.x, (each, *bench.images.x.shape[1:])))

    def served() -> Measured:
        nonlocal failures
        before = cpu_seconds(bench.server.pid)
        found = bench.ask(bench.server.address, each, in_flight=sizes.messages_in_flight)
        spent, answered = cpu_seconds(bench.server.pid) - before, each * len(found["latencies"])
        failures += sum(found["failures"].values())
        return Measured(answered / found["seconds"], spent / answered)

    def direct() -> Measured:
        with on_cores(bench.cores.front):
            examples, cpu, begun = 0, time.process_time(), time.perf_counter()
            while time.perf_counter() - begun < seconds:
                predictor.predict(x, 0, 0, False)
                examples += each
            return Measured(examples / (time.perf_counter() - begun), (time.process_time() - cpu) / examples)

    served()
    ratios: list[float] = []
    ours, ceiling, ratio, cpu_ratio = in_turns(served, direct, sizes.rounds, ratios)
    return Throughput(
        f"{each}-image messages, {sizes.messages_in_flight} in flight",
        "examples/s",
        f"the engine's own predict, batches of {each}",
        *(ours, ceiling, ratio, cpu_ratio, MESSAGES_TARGET, failures),
        ratios=ratios,
    )
