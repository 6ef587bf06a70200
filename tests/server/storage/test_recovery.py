"""A journal that is lost: learners come back from their snapshots, and what was forgotten stays so."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sharp.v1 import label_pb2
from sharp.v1 import learner_admin_pb2 as pb
from sharp.v1 import snapshot_pb2 as snap
from sharp_server.storage.data_folder import new_name, origin_and_version
from sharp_server.storage.records import NewLearner
from sharp_server.storage.sqlite import learners, schema
from tests.server.running import SECONDS, Server, answered, blobs


def data(server: Server) -> Path:
    return server.folder / "data"


def listed(server: Server, name: str) -> list[snap.Snapshot]:
    return list(server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner=name)).snapshots)


def ruin(server: Server) -> None:
    """Write rubbish over the journal of a server that has stopped."""
    for name in ("journal.db", "journal.db-wal"):
        (data(server) / name).write_bytes(b"garbage" * 5000)


def test_learners_come_back_from_their_snapshots_when_the_journal_is_beyond_repair(
    serve: Callable[..., Server],
) -> None:
    server = serve()
    server.create("pets", seed=3)
    server.create("empty", shape=[7])
    x, y = blobs("ab")
    server.teach("pets", (x, y), blobs("cd"))
    kept = server.admin.CreateSnapshot(snap.CreateSnapshotRequest(learner="pets")).snapshot
    server.admin.ForgetClass(pb.ForgetClassRequest(learner="pets", label=label_pb2.Label(text="c")))
    before, were = server.predict("pets", x[:20]), listed(server, "pets")
    assert before.model_version == 3
    server.stop()
    ruin(server)
    server.start()
    after = server.predict("pets", x[:20])
    assert (after.model_version, answered(after)) == (3, answered(before))
    assert list(after.distances) == list(before.distances)
    assert [(s.id, s.origin, s.model_version, s.sha256) for s in listed(server, "pets")] == [
        (s.id, s.origin, s.model_version, s.sha256) for s in were
    ]
    assert server.learner("pets").config.seed == 3 and list(server.learner("empty").input_shape) == [7]
    damage = server.status().corruption_events[0]
    assert "journal was damaged" in damage.detail and "2 learners came back" in damage.detail
    assert list(data(server).glob("damaged-*-journal.db"))
    # What was forgotten is in an older snapshot, and stays forgotten when that is restored.
    restored = server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="pets", snapshot_id=kept.id))
    assert list(restored.classes_forgotten.texts.values) == ["c"] and restored.model_version == 4
    assert {known.label.text for known in server.learner("pets").classes} == set("abd")
    assert server.teach("pets", blobs("ef")) == 5
    assert server.teach("empty", blobs("gh", features=7)) == 1
    server.stop()
    server.start()
    assert len(server.status().corruption_events) == 1 and server.learner("pets").status.model_version == 5


def test_a_missing_journal_deletes_nothing_and_a_folder_without_a_name_keeps_what_it_knows(
    serve: Callable[..., Server],
) -> None:
    server = serve()
    server.create("pets")
    x, y = blobs("ab")
    server.teach("pets", (x, y), blobs("cd"))
    server.stop()
    for path in data(server).glob("journal.db*"):
        path.unlink()
    folder = next((data(server) / "snapshots").iterdir())
    (folder / "learner.json").write_text("{")
    newest = max(folder.glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])
    stranger = data(server) / "snapshots" / "stranger"
    stranger.mkdir()
    (stranger / "00000001a-000000000000.safetensors").write_bytes(b"nothing")
    server.start()
    (name,) = [learner.name for learner in server.admin.ListLearners(pb.ListLearnersRequest()).learners]
    assert name.startswith("recovered-")
    answer = server.predict(name, x[:5])
    assert (answer.model_version, answer.episodes_learned, answered(answer)) == (3, 1, y[:5])
    details = [damage.detail for damage in server.status().corruption_events]
    assert "damaged" in details[0] and "the journal was missing; 1 learners came back" in details[1]
    assert len(list(data(server).glob("damaged-*-stranger/*"))) == 1


def test_a_journal_of_another_format_is_left_alone(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("pets")
    server.stop()
    with sqlite3.connect(data(server) / "journal.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    server.start(wait=False)
    assert server.process.wait(SECONDS) == 1
    assert "the journal has format 99" in server.log.read_text().splitlines()[-1]
    assert (data(server) / "journal.db").exists() and not list(data(server).glob("damaged-*"))


def test_a_journal_that_was_used_is_told_from_a_new_one(tmp_path: Path) -> None:
    connection = schema.connect(tmp_path / "journal.db")
    schema.create(connection)
    assert learners.never_used(connection)
    row = learners.create(connection, NewLearner("a", "u", b"", "{}", None, None), 9)
    learners.delete(connection, row.id)
    assert not learners.never_used(connection)
    connection.close()


@pytest.mark.parametrize("origin", ["automatic", "requested", "imported"])
def test_the_name_of_a_snapshot_tells_its_version_and_origin(origin: str) -> None:
    assert origin_and_version(new_name(123456789, origin)) == (origin, 123456789)
    assert origin_and_version("../journal") is None
