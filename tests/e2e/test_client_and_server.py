"""The client, a real server and the engine together: the same answers, and nothing lost when the server dies."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sharp_client
from devtools.server_process import ServerProcess
from sharp_client import AsyncClient, Client, Retry
from tests.server.running import Server

datasets = pytest.importorskip("sklearn.datasets")
pytest.importorskip("sharp_server")

WAIT = 180.0
"""Seconds after which something is hung, on however busy a machine."""
SETTINGS = {"metric.random_features": 200, "training.phases": 2, "training.min_steps": 20, "memory.holdout": 0.05}


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    loaded = datasets.load_digits()
    return (loaded.data / 16).astype(np.float32), loaded.target


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def address(shared: Server) -> str:
    """A server that all tests of this module share, each with learners of its own."""
    return shared.address


def test_predictions_over_the_wire_equal_those_of_the_engine_called_directly(address: str) -> None:
    engine = pytest.importorskip("sharp_engine")
    x, y = digits()
    episodes = [np.flatnonzero(np.isin(y[:600], group)) for group in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))]
    alone = engine.Learner(engine.preset("default").with_options({**SETTINGS, "seed": 11, "device": "cpu"}))
    with Client(address) as sharp:
        learner = sharp.learner("equal")
        learner.create(overrides=SETTINGS, seed=11)
        with learner.learn() as stream:
            for chosen in episodes:
                for start in range(0, len(chosen), 100):
                    stream.send(x[chosen[start : start + 100]], y[chosen[start : start + 100]])
                report = stream.end_episode()
        report.wait(WAIT)
        for chosen in episodes:
            alone.learn_episode(x[chosen], y[chosen].tolist())
        there = learner.predict(x[1200:], min_model_version=report.model_version, novelty=True, top_k=3)
        here = alone.predict(x[1200:], top=3, novelty=True)
        assert (there.model_version, there.episodes_learned) == (5, 5)
        assert there.labels.tolist() == here.labels
        assert np.array_equal(there.vote_shares, here.share)
        assert np.array_equal(there.distances, here.distance)
        assert there.novelties is not None and np.array_equal(there.novelties, here.novelty)
        assert learner.evaluate(x[1200:], y[1200:]).accuracy > 0.85


def test_bytes_and_floats_are_the_same_input(address: str) -> None:
    x, y = digits()
    grey = np.round(x * 255).astype(np.uint8).reshape(-1, 8, 8)
    with Client(address) as sharp:
        learner = sharp.learner("bytes")
        learner.create(overrides=SETTINGS)
        with learner.learn() as stream:
            stream.send(grey[:200], [f"digit {label}" for label in y[:200]])
            stream.end_episode().wait(WAIT)
        as_bytes, as_floats = learner.predict(grey[200:260]), learner.predict(grey[200:260] / np.float32(255))
        assert as_bytes.labels.tolist() == as_floats.labels.tolist()
        assert all(str(label).startswith("digit ") for label in as_bytes.labels)


def test_a_learner_moves_to_another_by_a_file_and_forgets_a_class(address: str, tmp_path: Path) -> None:
    x, y = digits()
    with Client(address) as sharp:
        learner = sharp.learner("mover")
        learner.create(overrides=SETTINGS)
        with learner.learn() as stream:
            stream.send(x[:300], y[:300])
            stream.end_episode().wait(WAIT)
        before = learner.predict(x[300:400])
        learner.export_to(tmp_path / "mover.safetensors")
        copy = sharp.learner("mover-copy")
        assert copy.import_from(tmp_path / "mover.safetensors").created
        assert copy.predict(x[300:400]).labels.tolist() == before.labels.tolist()
        forgotten = copy.forget(3)
        assert forgotten.ltm_entries > 0
        assert 3 not in copy.predict(x[300:400], min_model_version=forgotten.model_version).labels
        (tmp_path / "hostile").write_bytes(b"\x80\x04cos\nsystem\n")
        with pytest.raises(sharp_client.SnapshotMalformedError):
            copy.import_from(tmp_path / "hostile")
        assert next(copy.watch()).status.layers


def test_errors_of_the_server_come_as_their_exceptions(address: str) -> None:
    with Client(address) as sharp:
        with pytest.raises(sharp_client.LearnerNotFoundError) as missing:
            sharp.get_learner("nobody")
        assert missing.value.metadata["learner"] == "nobody"
        sharp.create_learner("fresh")
        with pytest.raises(sharp_client.NothingLearnedError):
            sharp.predict("fresh", np.zeros((1, 4), np.float32))
        with pytest.raises(sharp_client.LearnerExistsError):
            sharp.create_learner("fresh")
        with pytest.raises(sharp_client.ConfigInvalidError):
            sharp.create_learner("other", preset="no-such-preset")
        with pytest.raises(sharp_client.BackboneNeededError):
            with sharp.learner("large").learn() as stream:
                stream.send(np.zeros((2, 3, 300, 300), np.uint8), ["a", "a"])
        sharp.create_learner("lonely", preset="sharp")  # without a metric, an episode needs a pair
        with pytest.raises(sharp_client.EpisodeParkedError):
            with sharp.learner("lonely").learn() as stream:
                stream.send(np.eye(2, 4, dtype=np.float32), [1, 2])
                stream.end_episode().wait(WAIT)


def test_the_asyncio_client_teaches_and_asks_at_the_same_time(address: str) -> None:
    x, y = digits()

    async def main() -> None:
        async with AsyncClient(address) as sharp:
            learner = sharp.learner("async")
            await learner.create(overrides=SETTINGS)
            async with learner.learn() as stream:
                await stream.send(x[:200], y[:200])
                report = await stream.end_episode()
                await report.wait(WAIT)
                await stream.send(x[200:400], y[200:400])
                second = await stream.end_episode()
                answers = await asyncio.gather(*(learner.predict(x[i : i + 1]) for i in range(400, 430)))
                await second.wait(WAIT)
            assert {int(answer.labels[0]) for answer in answers} <= set(range(10))
            assert second.model_version > report.model_version

    asyncio.run(main())


def test_the_command_teaches_evaluates_and_shows(address: str) -> None:
    from sharp_cli.main import app

    def run(*words: str) -> list[Any]:
        done = CliRunner().invoke(app, [*words, "--json"], env={"SHARP_ADDRESS": address})
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert run("learn", "iris", "--part", "train")[-1]["model_version"] == 1
    assert run("evaluate", "iris", "--part", "test", "-l", "iris")[0]["accuracy"] > 0.7
    assert run("status")[0]["state"] == "serving"
    assert run("watch", "--once", "-l", "iris")[0]["status"]["layers"]
    assert run("snapshot", "list", "-l", "iris")[0]["snapshots"]


def test_a_client_continues_by_itself_after_the_server_was_killed_in_mid_stream(tmp_path: Path) -> None:
    x, y = digits()
    with ServerProcess(tmp_path, {"listen.port": free_port(), "trainer.niceness": 0}).start() as server:
        with Client(server.address, retry=Retry(attempts=20, resume_for=WAIT)) as sharp:
            learner = sharp.learner("survivor")
            learner.create(overrides=SETTINGS)
            with learner.learn() as stream:
                for start in range(0, 400, 20):
                    stream.send(x[start : start + 20], y[start : start + 20])
                    if start == 200:
                        stream.flush(WAIT)
                        server.kill()
                server.start()
                report = stream.end_episode()
            report.wait(WAIT)
            assert stream.resumptions >= 1
            assert report.closed is not None and report.closed.examples == 400
            assert report.statistics is None or report.statistics.examples == 400
            assert learner.predict(x[:50], min_model_version=report.model_version).model_version >= 1
