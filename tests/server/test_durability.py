"""Kills, damage, drains: nothing acknowledged is lost, nothing is learned twice, nothing damaged answers."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from sharp.v1 import learning_pb2
from sharp.v1 import snapshot_pb2 as snap
from sharp_engine import Learner
from sharp_server import schema
from sharp_server.ledger_ingest import account
from tests.server.running import Server, answered, blobs, refused, until

SLOW: dict[str, Any] = {"training__phases": "6", "training__least_steps": "60"}


def accounts(server: Server) -> list[tuple[int, str, int, int]]:
    """(episode, state, sequence, example) of every example, from the journal itself."""
    connection = schema.connect(Path(str(server.settings["data.folder"])) / "journal.db", readonly=True)
    try:
        rows = account(connection, 1)
    finally:
        connection.close()
    return [(number, state, sequence, first + i) for number, state, _, sequence, first, n in rows for i in range(n)]


def weights(server: Server, learner: str, folder: Path) -> Learner:
    path = folder / f"{learner}-{time.monotonic_ns()}.safetensors"
    path.write_bytes(server.exported(learner)[1])
    return Learner.load(path)


def test_after_any_kill_everything_acknowledged_is_learned_once_and_to_the_last_bit(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """One producer, three episodes; the server is killed twice and the trainer once, at different moments."""
    server = serve(trainer__attempts=10)
    episodes = [blobs(pair, each=40, seed=i) for i, pair in enumerate(("ab", "cd", "ef"))]
    batches: list[Any] = []
    for x, y in episodes:
        batches += [(x[i : i + 20], y[i : i + 20]) for i in range(0, len(y), 20)] + [None]
    server.create("killed", seed=11, **SLOW)

    def send_up_to(last: int, wait: str = "") -> None:
        with server.stream("killed") as stream:
            for batch in batches[stream.opened.last_durable_sequence : last]:
                stream.send(*batch) if batch is not None else stream.end()
            stream.wait_ack()
            if wait:
                stream.wait_event(wait)

    send_up_to(7, "progress")  # one episode under way, two batches of the next one taken
    server.kill()
    server.start()
    with server.stream("killed") as stream:
        assert stream.opened.last_durable_sequence == 7 and stream.opened.open_examples == 40
    until(lambda: server.status().trainer.episode)
    os.kill(server.trainer_pid(), signal.SIGKILL)
    send_up_to(12)
    assert until(lambda: server.status().trainer.restarts) == 1
    until(lambda: server.learner("killed").status.model_version >= 1, 60)
    server.kill()
    server.start()
    send_up_to(len(batches))
    until(lambda: server.learner("killed").status.model_version == 3, 60)

    server.create("calm", seed=11, **SLOW)
    server.teach("calm", *episodes)
    x = np.concatenate([x for x, _ in episodes])
    one, other = weights(server, "killed", tmp_path), weights(server, "calm", tmp_path)
    assert one.inspect() == other.inspect()
    for ours, theirs in zip(one.network.layers, other.network.layers, strict=True):
        assert bool((ours.weight == theirs.weight).all()) and bool((ours.ranks == theirs.ranks).all())
    assert list(server.predict("killed", x).distances) == list(server.predict("calm", x).distances)

    told = accounts(server)
    assert len(told) == len({(sequence, example) for _, _, sequence, example in told}) == 240
    assert {state for _, state, _, _ in told} == {"learned"}
    connection = sqlite3.connect(Path(str(server.settings["data.folder"])) / "journal.db")
    assert connection.execute("SELECT count(*) FROM examples").fetchone() == (0,)
    connection.close()


def test_a_killed_trainer_goes_on_from_the_last_finished_phase(serve: Callable[..., Server]) -> None:
    server = serve(trainer__attempts=10)
    server.create("phases", training__phases="5", training__least_steps="150")
    with server.stream("phases") as stream:
        stream.send(*blobs("ab", each=100))
        stream.end()
        work = server.folder / "data" / "work"
        until(lambda: list(work.glob("*-0002-*")), 60)
        server_pid = server.trainer_pid()
        os.kill(server_pid, signal.SIGKILL)
        stream.close()
        events = list(stream.events())
    started = [event.started for event in events if event.HasField("started")]
    assert started[-1].phase >= 3
    assert events[-1].HasField("learned")
    assert len(events[-1].learned.statistics.phase_losses) == 5
    assert not list(work.glob("*.safetensors"))


def test_a_trainer_that_dies_or_hangs_each_time_parks_the_episode_and_predictions_go_on(
    serve: Callable[..., Server],
) -> None:
    server = serve(trainer__attempts=2, trainer__watchdog_seconds=1.5)
    server.create("good")
    x, y = blobs("ab")
    server.teach("good", (x, y))
    server.create("slow", training__phases="1", training__least_steps="100000")
    with server.stream("slow") as stream:
        stream.send(*blobs("ab", each=100))
        stream.end()
        stream.wait_event("progress")
        os.kill(server.trainer_pid(), signal.SIGKILL)
        stream.wait_event("started")
        stream.wait_event("progress")
        os.kill(server.trainer_pid(), signal.SIGSTOP)
        assert answered(server.predict("good", x[:3])) == y[:3]
        parked = stream.wait_event("parked").parked
    assert (parked.reason, parked.attempts) == (5, 2)
    assert "no progress" in parked.detail
    assert server.teach("good", blobs("cd")) == 2


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
    damages = server.status().damages
    assert [(d.learner, d.lost_model_version, d.serving_model_version) for d in damages] == [("hurt", 2, 3)]
    learner = server.learner("hurt")
    assert learner.status.damaged_snapshots == 1
    assert server.teach("hurt", blobs("ef")) == 4
    listed = server.admin.ListSnapshots(snap.ListSnapshotsRequest(learner="hurt")).snapshots
    bad = next(snapshot for snapshot in listed if snapshot.damaged)
    with refused("SNAPSHOT_DAMAGED"):
        server.admin.RestoreSnapshot(snap.RestoreSnapshotRequest(learner="hurt", snapshot_id=bad.id))


def test_a_term_signal_drains_what_was_accepted_and_ends_with_zero(serve: Callable[..., Server]) -> None:
    server = serve()
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
    assert server.process.wait(15) == 0
    stop.set()
    for asker in askers:
        asker.join(10)
    assert not failures and served
    server.start()
    until(lambda: server.learner("drained").status.model_version == 2, 60)
    assert server.log.read_text().count("Traceback") == 0


def test_a_full_disk_refuses_batches_keeps_answering_and_recovers_by_itself(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("full", shape=[3000])
    server.create("small")
    x, y = blobs("ab")
    server.teach("small", (x, y))
    limit = sum(path.stat().st_size for path in (server.folder / "data").glob("journal*")) + 300_000
    resource_limit(server.process.pid, limit)
    big = np.random.default_rng(0).random((100, 3000)).astype(np.float32)
    with refused("DISK_FULL") as failure, server.stream("full") as stream:
        for _ in range(20):
            stream.send(big, ["a"] * 100)
        stream.wait_ack()
    assert failure[0].retry
    durable = stream.acked
    assert answered(server.predict("small", x[:3])) == y[:3]
    resource_limit(server.process.pid, -1)
    with server.stream("full") as stream:
        assert stream.opened.last_durable_sequence >= durable
        stream.send(big, ["a"] * 100)
        stream.wait_ack()


def resource_limit(pid: int, size: int) -> None:
    """Bound the size of files that a process may write: writes beyond it fail."""
    import resource

    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_client_that_leaves_after_the_last_acknowledgement_is_not_missed(serve: Callable[..., Server]) -> None:
    server = serve()
    server.create("left")
    with server.stream("left", boundaries=learning_pb2.BOUNDARIES_EXPLICIT) as stream:
        stream.send(*blobs("ab"))
        stream.end()
        stream.wait_ack()
    until(lambda: server.learner("left").status.model_version == 1, 60)
