"""Predictions per second of one follower and of two, each with a core of its own, and how long an answer takes.

A core has one follower and the load generator that asks it, alone or beside the other core with the same: so a
generator that costs processor time costs every follower the same, and twice the cores could bring twice the answers.
The messages are large, which leaves most of a core to the follower. As many messages are under way at every follower
in both cases, so that the times of answers may be compared.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.cluster.options import FOLLOWERS_TARGET, ClusterOptions
from benchmarks.cluster.waiting import until
from benchmarks.errors import require
from benchmarks.serving.bench import LEARNER, images_of, payload, teach_all
from benchmarks.serving.options import ServingOptions
from benchmarks.serving.processes import Cores, LoadGenerator, MeasuredServer, choose_cores, pin
from devtools.postgres_process import PostgresProcess
from devtools.process_stats import children
from sharp_client import Client


@dataclass
class Asked:
    """Some followers, asked at the same time."""

    rates: list[float] = field(default_factory=list)
    """Examples answered per second by all of them, round by round."""
    p50: list[float] = field(default_factory=list)
    """Seconds until a message is answered, round by round."""
    p99: list[float] = field(default_factory=list)
    failures: int = 0


@dataclass(frozen=True)
class Followers:
    """One follower, and two."""

    one: Asked
    two: Asked
    examples: int
    """Of a message."""
    in_flight: int
    """Messages under way at each follower."""
    target: float = FOLLOWERS_TARGET

    @property
    def ratio(self) -> float:
        """Examples per second of two over those of one."""
        return statistics.median(two / one for one, two in zip(self.one.rates, self.two.rates, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "ratio": self.ratio}


def followers(options: ClusterOptions, folder: Path) -> Followers:
    """Start an owner and two followers, and ask one and both in turns."""
    cores = choose_cores()
    require(bool(cores.front), "cores", 1, "two at least, of which the system lets us choose")
    images, sizes = images_of(8, options.sizes.images_per_class), options.sizes
    with PostgresProcess() as postgres:
        shared = {"data.store": postgres.database("followers"), "data.objects": folder / "objects", "log.level": "info"}
        servers = [
            MeasuredServer(folder / node, Cores(core, core, core), 10, {**shared, "cluster.node": node})
            for node, core in (("owner", cores.trainer), ("one", cores.front), ("two", cores.trainer))
        ]
        with servers[0].start() as owner, servers[1].start() as one, servers[2].start() as two:
            with Client(owner.address) as client:
                teach_all(client, images, ServingOptions(sizes=sizes))
                version = client.get_learner(LEARNER).status.model_version
            _follow(postgres.database("followers"))
            for server in (one, two):
                until(partial(_is_followed, server), "the learner is followed")
                with Client(server.address) as client:
                    client.predict(LEARNER, images.x[:1], min_model_version=version)
            owner.kill()  # nobody learns meanwhile: whatever it did would be at the cost of one of them
            for server, core in ((one, cores.front), (two, cores.trainer)):
                for pid in (server.pid, *children(server.pid)):
                    pin(pid, core)
            generators = [LoadGenerator(folder, Cores(load=core)) for core in (cores.front, cores.trainer)]
            with generators[0], generators[1]:
                order = {"payload": payload(images, sizes.message_examples), "seconds": options.seconds}
                return _measure(options, [one.address, two.address], generators, order)


def _is_followed(server: MeasuredServer) -> bool:
    return "is followed here" in server.log.read_text()


def _follow(dsn: str) -> None:
    """Say who follows, in the coordinator's place."""
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("INSERT INTO cluster_placements SELECT uid, 'owner', '{one,two}' FROM learners")


def _measure(
    options: ClusterOptions, addresses: list[str], generators: list[LoadGenerator], order: dict[str, Any]
) -> Followers:
    each, in_flight = options.sizes.message_examples, options.sizes.messages_in_flight

    def ask(chosen: list[int]) -> tuple[float, list[float], int]:
        orders = [{**order, "address": addresses[index], "in_flight": in_flight} for index in chosen]
        with ThreadPoolExecutor(len(chosen)) as threads:
            found = list(threads.map(lambda index, wanted: generators[index].ask(wanted), chosen, orders))
        rate = sum(each * len(answer["latencies"]) / answer["seconds"] for answer in found)
        latencies = [latency for answer in found for latency in answer["latencies"]]
        return rate, latencies, sum(sum(answer["failures"].values()) for answer in found)

    alone, together = Asked(), Asked()
    ask([0, 1])  # warms up
    for _ in range(options.rounds):
        first, both, second = ask([0]), ask([0, 1]), ask([1])
        alone.rates.append((first[0] + second[0]) / 2)
        together.rates.append(both[0])
        for asked, latencies, failures in (
            (alone, first[1] + second[1], first[2] + second[2]),
            (together, both[1], both[2]),
        ):
            cut = statistics.quantiles(latencies, n=100, method="inclusive")
            asked.p50.append(cut[49])
            asked.p99.append(cut[98])
            asked.failures += failures
    return Followers(alone, together, each, in_flight)
