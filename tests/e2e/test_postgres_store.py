"""`sharp serve --store postgresql:…` with real processes: killed, refused beside another, without its database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from devtools.postgres_process import PostgresProcess
from devtools.server_process import ONE_THREAD, ServerProcess, ServerProcessError
from sharp_client import Client, OpenEpisodeWarning, Retry, StoreUnavailableError
from tests.e2e.test_known_at_once import CLASSES, answers, examples
from tests.server.running import SECONDS, SMALL

SECRET = "very-secret"
PROBES = np.concatenate([examples(label, 10, 9) for label in CLASSES])


@pytest.fixture
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


def serve(folder: Path, postgres: PostgresProcess, as_command: bool = False) -> ServerProcess:
    """A server that is not started yet: by the command, or in a moment."""
    store = postgres.database("sharp").replace("postgres@", f"postgres:{SECRET}@")
    settings = {"store" if as_command else "data.store": store, "teaching.version_seconds": 3600}
    return ServerProcess(folder, settings, environment=ONE_THREAD, as_command=as_command)


def test_a_server_on_postgres_is_killed_and_answers_as_before(tmp_path: Path, postgres: PostgresProcess) -> None:
    server = serve(tmp_path / "one", postgres, as_command=True)
    with server.start(), Client(server.address) as client:
        client.create_learner("trees", overrides=SMALL)
        trees = client.learner("trees")
        with trees.learn() as stream:
            for label in CLASSES[:2]:
                stream.send(examples(label, 30, 2), [label] * 30)
            stream.end_episode().wait(SECONDS)
        trees.teach(examples("cedar", 5, 1), ["cedar"] * 5, request_id="cedars")
        with pytest.warns(OpenEpisodeWarning), trees.learn(stream_id="open") as stream:
            stream.send(examples("ash", 8, 3), ["ash"] * 8)
        assert trees.predict(PROBES, min_examples=73).labels.tolist() == [c for c in CLASSES for _ in range(10)]
        before = answers(client, PROBES)
        other = serve(tmp_path / "other", postgres)
        with pytest.raises(ServerProcessError, match="another server uses the database"):
            other.start()
        server.kill()
    server = serve(tmp_path / "one", postgres)
    with server.start(), Client(server.address) as client:
        trees = client.learner("trees")
        trees.predict(PROBES, min_examples=73)
        assert answers(client, PROBES) == before
        assert trees.teach(examples("cedar", 5, 1), ["cedar"] * 5, request_id="cedars").repetition
        with trees.learn(stream_id="open", create=False) as stream:
            assert stream.acknowledged == 1
            assert stream.end_episode().wait(SECONDS).model_version == 2
        server.stop()
    assert SECRET not in server.log.read_text() + other.log.read_text()
    assert not (server.data / "journal.db").exists()


def test_predictions_go_on_while_the_database_is_away_and_learning_when_it_is_back(
    tmp_path: Path, postgres: PostgresProcess
) -> None:
    server = serve(tmp_path / "one", postgres)
    with server.start(), Client(server.address, retry=Retry(attempts=1)) as client:
        client.create_learner("trees", overrides=SMALL)
        trees = client.learner("trees")
        trees.teach(examples("ash", 5, 1), ["ash"] * 5)
        trees.teach(examples("cedar", 5, 1), ["cedar"] * 5)
        with trees.learn(stream_id="s") as stream:
            for label in CLASSES:
                stream.send(examples(label, 20, 2), [label] * 20)
            stream.flush(SECONDS)
            postgres.kill()
            assert trees.predict(examples("ash", 1, 5)).labels.tolist() == ["ash"]
            with pytest.raises(StoreUnavailableError):
                trees.teach(examples("ash", 1, 5), ["ash"])
            stream.send(examples("ash", 20, 4), ["ash"] * 20)
            postgres.start()
            stream.end_episode().wait(SECONDS)
        assert trees.teach(examples("birch", 1, 6), ["birch"]).examples_known == 10 + 80 + 1
        assert trees.predict(PROBES).labels.tolist() == [label for label in CLASSES for _ in range(10)]
    assert SECRET not in server.log.read_text()
