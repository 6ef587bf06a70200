"""Several learners on one server: the trainer's turns, the queue of predictions, and learners with a backbone."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torchvision import models

import sharp_engine as engine
from sharp.v1 import learner_admin_pb2, prediction_pb2
from tests.server.api.test_admin import bring, export
from tests.server.running import SECONDS, SMALL, Failure, Server, answered, blobs, refused, tensor, until

BACKBONE = {"model": "mobilenet_v3_small", "layer": "avgpool", "weights": "eyes.safetensors"}
HEAD = json.dumps([{"kind": "linear", "units": 40}] * 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("several")
    (folder / "weights").mkdir()
    torch.manual_seed(7)
    save_file(models.get_model(BACKBONE["model"]).state_dict(), folder / "weights" / BACKBONE["weights"])
    settings = {"data__weights_folder": folder / "weights", "trainer__niceness": 1, "batching__queue_examples": 1500}
    started = Server(folder, **settings).start()
    yield started
    started.stop()


def test_the_trainer_works_on_learners_in_turn(server: Server) -> None:
    for name in ("busy", "late"):
        server.create(name, training__min_steps="20")
    with server.stream("busy") as busy, server.stream("late") as late:
        for stream, episodes in ((busy, 6), (late, 3)):
            for number in range(episodes):
                stream.send(*blobs([2 * number, 2 * number + 1]))
                stream.end()
            stream.wait_ack()
            stream.close()
        closed = max(event.time.ToNanoseconds() for event in late.seen if event.HasField("closed"))
        learned = [
            (event.time.ToNanoseconds(), name, event.learned.statistics.training_time.ToNanoseconds() / 1e9)
            for name, stream in (("busy", busy), ("late", late))
            for event in (*stream.seen, *stream.events())
            if event.HasField("learned")
        ]
    order = [(name, seconds) for when, name, seconds in sorted(learned) if when > closed]
    assert [name for name, _ in order].count("late") == 3
    # Turns go by time given, so that neither waits for more than its share of the other's: what its own episode takes,
    # or was thought to take by the one before, and the one that had begun.
    longest = max(seconds for _, seconds in order)
    given, before = {"busy": 0.0, "late": 0.0}, 0.0
    for name, seconds in order:
        if name == "late":
            assert given["busy"] <= given["late"] + max(seconds, before) + longest, order
            before = seconds
        given[name] += seconds


def test_predictions_notice_neither_training_nor_new_versions(server: Server) -> None:
    server.create("swapped")
    x, y = blobs("ab")
    server.teach("swapped", (x, y))
    versions: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            versions.append(server.predict("swapped", x[:1]).model_version)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            assert server.teach("swapped", blobs("cd"), blobs("ef")) == 3
            until(lambda: 3 in versions or asking.done())
        finally:
            over.set()
        asking.result(SECONDS)  # no call failed
    assert versions == sorted(versions) and set(versions) <= {1, 2, 3} and versions[0] == 1


def test_the_trainer_is_a_process_of_its_own_with_its_own_threads_and_niceness(server: Server) -> None:
    assert server.status().trainer.threads == 1
    pid = server.trainer_pid()
    assert pid != server.process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, server.process.pid) == 1


def figures(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_every_figure_that_an_operator_needs_is_measured(server: Server) -> None:
    before = figures(server)
    for name, steps in (("measured", "8"), ("slow", "4000")):
        server.create(name, training__min_steps=steps)
    x, y = blobs("ab")
    server.teach("measured", (x, y))
    server.create("lonely", metric__enabled="false")  # it needs a pair of one class
    with server.stream("lonely") as stream:
        stream.send(np.eye(2, 12, dtype=np.float32), ["a", "b"])
        stream.end()
        stream.wait_event("parked")
    server.predict("measured", x)
    with refused("SHAPE_MISMATCH"):
        server.predict("measured", x[:, :3])
    with server.stream("slow") as stream:
        for _ in range(3):
            stream.send(x, y)
            stream.end()
        stream.wait_event("started")
        found = figures(server)
        server.admin.DeleteLearner(learner_admin_pb2.DeleteLearnerRequest(name="slow"), timeout=SECONDS)

    def risen(name: str) -> float:
        return found[name] - before.get(name, 0.0)

    assert risen('sharp_requests_total{code="OK",method="/sharp.v1.Prediction/Predict"}') == 1
    assert risen('sharp_requests_total{code="INVALID_ARGUMENT",method="/sharp.v1.Prediction/Predict"}') == 1
    for histogram in ("sharp_prediction_queue_seconds", "sharp_compute_seconds", "sharp_batch_examples"):
        assert risen(f"{histogram}_count") == 1 and risen(f'{histogram}_bucket{{le="+Inf"}}') == 1
    assert risen("sharp_batch_examples_sum") == len(x)
    assert risen("sharp_examples_learned_total") == len(x) and risen("sharp_examples_ingested_total") == 4 * len(x) + 2
    states = {state: found[f'sharp_episodes{{learner="measured",state="{state}"}}'] for state in
              ("waiting", "training", "parked", "learned")}  # fmt: skip
    assert states == {"waiting": 0, "training": 0, "parked": 0, "learned": 1}
    assert found['sharp_episodes{learner="lonely",state="parked"}'] == 1
    assert found['sharp_episodes{learner="slow",state="waiting"}'] == 2
    assert found['sharp_episodes{learner="slow",state="training"}'] == 1
    assert found['sharp_lag_examples{learner="slow"}'] == 3 * len(x) and found['sharp_lag_seconds{learner="slow"}'] > 0
    assert found['sharp_lag_examples{learner="measured"}'] == 0
    assert found['sharp_model_version{learner="measured"}'] == 1 and found['sharp_model_version{learner="slow"}'] == 0
    assert found['sharp_stm_bytes{learner="measured"}'] > 0 and found['sharp_ltm_bytes{learner="measured"}'] > 0
    layers = server.learner("measured").status.layers
    for layer in layers:
        assert found[f'sharp_idle_units{{layer="{layer.name}",learner="measured"}}'] == layer.idle
    for name in ("sharp_corruption_events_total", "sharp_discarded_episodes_total", "sharp_trainer_restarts_total"):
        assert name in found
    assert risen('sharp_training_failures_total{reason="NO_POSITIVE_PAIR"}') == 1
    assert min(found[f'sharp_memory_bytes{{process="{process}"}}'] for process in ("front", "trainer")) > 1e6


def test_more_predictions_than_may_wait_are_refused_with_a_delay_and_none_is_lost(server: Server) -> None:
    server.create("asked")
    x, y = blobs("ab")
    server.teach("asked", (x, y))
    many = np.tile(x, (20, 1))[:1000]
    request = prediction_pb2.PredictRequest(learner="asked", inputs=tensor(many))

    def burst() -> list[Failure]:
        calls = [server.prediction.Predict.future(request, timeout=SECONDS) for _ in range(24)]
        failures = []
        for call in calls:
            try:
                assert len(answered(call.result())) == 1000
            except grpc.RpcError as error:
                failures.append(Failure(error))
        assert len(failures) < len(calls), "someone is always answered"
        return failures

    for failure in until(burst, what="two calls of 1000 examples at the same time"):
        assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        assert failure.retry is not None and failure.retry > 0 and failure.metadata["limit"] == "1500"
    # Larger than the queue, but alone: it is answered, for otherwise it never could be.
    assert len(answered(server.predict("asked", np.tile(many, (2, 1))))) == 2000


def photos(seed: int = 0) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Twenty reddish and bluish images that are too large for a network without a backbone."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 120, (20, 3, 72, 72), dtype=np.uint8)
    x[:10, 0] += 120
    x[10:, 2] += 120
    order = rng.permutation(20)
    return x[order], [["red", "blue"][int(i >= 10)] for i in order]


def with_backbone(**changes: object) -> dict[str, Any]:
    return {
        "architecture__kind": "backbone",
        "architecture__layers": HEAD,
        "architecture__backbone": json.dumps({**BACKBONE, **changes}),
    }


def test_large_images_need_a_backbone_and_the_error_says_so(server: Server) -> None:
    x, y = photos()
    with refused("BACKBONE_NEEDED") as failed:
        with server.stream("no-backbone", create_if_missing=True) as stream:
            stream.send(x, y)
            stream.wait_ack()
    assert "72×72" in failed[0].message and "architecture.backbone" in failed[0].message
    assert failed[0].code == grpc.StatusCode.FAILED_PRECONDITION and failed[0].metadata["largest"] == "64×64"


def test_a_learner_with_a_backbone_learns_large_images_with_the_servers_own_weights(
    server: Server, tmp_path: Path
) -> None:
    server.create("photos", **with_backbone())
    x, y = photos()
    assert server.teach("photos", (x, y)) == 1
    answer = server.predict("photos", x)
    # The same as the engine, with the weights of that very file.
    path = server.folder / "weights" / BACKBONE["weights"]
    options = {
        "architecture.kind": "backbone",
        "architecture.layers": json.loads(HEAD),
        "architecture.backbone": {**BACKBONE, "weights": str(path)},
        **{key: int(SMALL[key]) for key in ("metric.random_features", "training.phases", "training.min_steps")},
        "device": "cpu",
    }
    alone = engine.Learner(engine.preset("default").with_options(options))
    alone.learn_episode(x, y)
    here = alone.predict(x)
    assert (answered(answer), list(answer.distances)) == (here.labels, here.distance.tolist())
    # It travels as one file, without a path of this server, and is the same elsewhere.
    about, content = export(server, "photos")
    assert str(server.folder).encode() not in content and b"eyes.safetensors" in content
    (tmp_path / "moved.safetensors").write_bytes(content)
    moved = engine.Learner.load(tmp_path / "moved.safetensors")
    assert np.array_equal(answer.distances, moved.predict(x).distance)
    assert bring(server, "photos-copy", content, sha256=about.sha256).created
    assert list(server.predict("photos-copy", x).distances) == list(answer.distances)
    assert str(server.folder) not in str(server.learner("photos"))
    assert server.teach("photos-copy", photos(1)) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "../../etc/passwd"}, "never a path"),
        ({"weights": "other.safetensors"}, "no file 'other.safetensors'"),
        ({"model": "no-such-model"}, "no such model"),
    ],
)
def test_a_backbone_that_cannot_be_is_refused_when_the_learner_is_made(
    changes: dict[str, str], said: str, server: Server
) -> None:
    with refused("CONFIG_INVALID") as failed:
        server.create("impossible", **with_backbone(**changes))
    assert said in failed[0].message
    with refused("LEARNER_NOT_FOUND"):
        server.learner("impossible")
