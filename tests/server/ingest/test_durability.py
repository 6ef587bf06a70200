"""Kills, damage, drains over the wire. The crash loop and the faults of disk and trainer are in `tests/faults`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import grpc

from sharp.v1 import learning_pb2
from sharp.v1 import snapshot_pb2 as snap
from tests.server.running import SECONDS, Server, answered, blobs, refused, until

SLOW: dict[str, Any] = {"training__phases": "6", "training__min_steps": "60"}


def test_a_killed_trainer_goes_on_from_the_last_finished_phase(serve: Callable[..., Server]) -> None:
    server = serve(trainer__attempts=10)
    server.create("phases", training__phases="5", training__min_steps="150")
    with server.stream("phases") as stream:
        stream.send(*blobs("ab", each=100))
        stream.end()
        work = server.folder / "data" / "work"
        until(lambda: list(work.glob("*-0002-*")))
        server_pid = server.trainer_pid()
        os.kill(server_pid, signal.SIGKILL)
        stream.close()
        events = list(stream.events())
    started = [event.started for event in events if event.HasField("started")]
    assert started[-1].phase >= 3
    assert events[-1].HasField("learned")
    assert len(events[-1].learned.statistics.phase_losses) == 5
    assert not list(work.glob("*.safetensors"))


def test_a_damaged_newest_snapshot_is_never_served_and_the_loss_is_told(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("hurt")
    x, y = blobs("ab")
    server.teach("hurt", (x, y), blobs("cd"))
    older = server.predict("hurt", x[:5])
    server.stop()
    newest = max((server.folder / "data" / "snapshots").rglob("*.safetensors"), key=lambda path: path.name)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    server.start()
    answer = server.predict("hurt", x[:5])
    assert answer.episodes_learned == 1 and answer.model_version == 3
    assert answered(answer) == y[:5] and older.episodes_learned == 2
    events = server.status().corruption_events
    assert [(d.learner, d.lost_model_version, d.serving_model_version) for d in events] == [("hurt", 2, 3)]
    learner = server.learner("hurt")
    assert learner.status.damaged_snapshots == 1
    assert server.teach("hurt", blobs("ef")) == 4
    listed = server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner="hurt")).snapshots
    bad = next(snapshot for snapshot in listed if snapshot.damaged)
    with refused("SNAPSHOT_DAMAGED"):
        server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="hurt", snapshot_id=bad.id))


def test_a_term_signal_drains_what_was_accepted_and_ends_with_zero(lend: Callable[..., Server]) -> None:
    server = lend()
    logged = len(server.log.read_text())
    server.create("drained", **SLOW)
    x, y = blobs("ab")
    server.teach("drained", (x, y))
    failures: list[Any] = []
    served: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                assert answered(server.predict("drained", x[:8])) == y[:8]
                served.append(1)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    failures.append(error)
                return

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    with server.stream("drained", "second") as stream:
        stream.send(*blobs("cd", each=100))
        stream.end()
        stream.wait_event("progress")
        server.process.send_signal(signal.SIGTERM)
        with refused("SERVER_NOT_READY"):
            stream.wait_event("learned")
    assert server.process.wait(SECONDS) == 0
    stop.set()
    for asker in askers:
        asker.join(SECONDS)
    assert not failures and served
    server.start()
    until(lambda: server.learner("drained").status.model_version == 2)
    assert server.log.read_text()[logged:].count("Traceback") == 0


def test_a_client_that_leaves_after_the_last_acknowledgement_is_not_missed(lend: Callable[..., Server]) -> None:
    server = lend()
    server.create("left")
    with server.stream("left", boundaries=learning_pb2.BOUNDARIES_EXPLICIT) as stream:
        stream.send(*blobs("ab"))
        stream.end()
        stream.wait_ack()
    until(lambda: server.learner("left").status.model_version == 1)
