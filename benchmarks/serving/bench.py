"""Everything that the measurements share: the processes, the taught learner, and what is asked of it."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import Examples, synthetic
from benchmarks.serving.options import ServingOptions
from benchmarks.serving.processes import Cores, EmptyService, LoadGenerator, MeasuredServer, choose_cores, on_cores
from sharp.v1 import prediction_pb2, tensor_pb2
from sharp_client import Client, UnavailableError

LEARNER = "measured"
_WAIT = 600.0
_CONNECT_SECONDS = 60.0


@dataclass(frozen=True)
class Bench:
    """A server that has learned, beside an empty one, and someone to ask both."""

    options: ServingOptions
    folder: Path
    cores: Cores
    server: MeasuredServer
    empty: EmptyService
    load: LoadGenerator
    client: Client
    images: Examples
    train_rate: float
    """Examples that the trainer learns per second."""

    def request(self, examples: int) -> str:
        """A request to predict so many images, as the load generator takes it."""
        return payload(self.images, examples)

    def ask(self, address: str, examples: int = 1, **order: Any) -> dict[str, Any]:
        """Let the load generator ask for a while: with `rate` or with `in_flight`."""
        order = {"address": address, "payload": self.request(examples), "seconds": self.options.seconds, **order}
        answer: dict[str, Any] = self.load.ask(order)
        return answer

    def sample(self, per_class: int) -> Examples:
        """So many images of each of two classes, as often as need be."""
        members = [np.resize(np.flatnonzero(self.images.y == label), per_class) for label in (0, 1)]
        index = np.concatenate(members)
        return self.images.take(np.random.default_rng(0).permutation(index))


@contextlib.contextmanager
def prepared(options: ServingOptions, folder: Path) -> Iterator[Bench]:
    """Start everything and teach the learner all classes, two at a time."""
    cores = choose_cores()
    images = images_of(options.image_side, options.sizes.images_per_class)
    with (
        on_cores(cores.load),
        MeasuredServer(folder, cores, options.niceness, {"http.enabled": True, "http.port": 0}).start() as server,
        EmptyService(folder, cores) as empty,
        LoadGenerator(folder, cores) as load,
        Client(server.address) as client,
    ):
        server.settle()
        rate = teach_all(client, images, options)
        server.settle()
        yield Bench(options, folder, cores, server, empty, load, client, images, rate)


def payload(images: Examples, examples: int) -> str:
    """A request to predict so many images, as the load generator takes it."""
    x = np.resize(images.x, (examples, *images.x.shape[1:]))
    tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_UINT8, shape=x.shape, data=x.tobytes())
    request = prediction_pb2.PredictRequest(learner=LEARNER, inputs=tensor_pb2.Inputs(tensor=tensor))
    return base64.b64encode(request.SerializeToString()).decode()


def teach_all(client: Client, images: Examples, options: ServingOptions) -> float:
    """Make the learner and teach it all classes, two at a time; returns examples learned per second."""
    sizes = options.sizes
    _create(client, options.overrides)
    begun = time.perf_counter()
    for first in range(0, 10, 2):
        teach(client, images.take(np.flatnonzero(images.y // 2 * 2 == first)), sizes.first_epochs)
    return len(images) * sizes.first_epochs / (time.perf_counter() - begun)


def _create(client: Client, settings: dict[str, Any]) -> None:
    """Make the learner; on a busy machine the first connection may take more than one try."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            client.create_learner(LEARNER, overrides=settings, seed=0)
            return
        except UnavailableError:
            if time.monotonic() > deadline:
                raise


def teach(client: Client, images: Examples, times: int = 1) -> None:
    """Teach one episode and wait until it serves."""
    with client.learn(LEARNER) as stream:
        for _ in range(times):
            stream.send(images.x, images.y)
        stream.end_episode().wait(_WAIT)


def images_of(side: int, per_class: int | None = None) -> Examples:
    """Ten classes of grey images; of each the first few, or all."""
    if side != 8:
        return synthetic.images(10, per_class or 180, (1, side, side))
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = Examples((digits.images * 15.9).astype(np.uint8)[:, None], digits.target.astype(np.int64))
    first = [np.flatnonzero(images.y == label)[:per_class] for label in range(10)]
    return images.take(np.sort(np.concatenate(first)))
