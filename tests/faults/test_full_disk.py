"""A disk without room: batches are refused with a delay, predictions go on, and all is well again when there is room.

The room is the largest size that the server's processes may give a file, which can be changed while they run.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sharp_client import Client, Retry
from tests.server.running import Server, answered, blobs, in_thread, refused, until

BIG = np.random.default_rng(0).random((60, 3000)).astype(np.float32), ["a", "b"] * 30


def give_room(pid: int, size: int = resource.RLIM_INFINITY) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def journal_size(server: Server) -> int:
    return sum(path.stat().st_size for path in (server.folder / "data").glob("journal*"))


def test_batches_are_refused_predictions_go_on_and_the_producer_recovers_by_itself(
    serve: Callable[..., Server],
) -> None:
    server = serve()
    front, trainer = server.process.pid, server.trainer_pid()
    server.create("full", shape=[3000], metric__random_features="0")
    server.create("small")
    x, y = blobs("ab")
    server.teach("small", (x, y))

    # The journal has no room: a producer is refused with a delay, and nothing half-written is kept.
    give_room(front, journal_size(server) + 300_000)
    with refused("DISK_FULL") as failure, server.stream("full") as stream:
        for _ in range(20):
            stream.send(*BIG)
        stream.wait_ack()
    assert failure[0].code.name == "RESOURCE_EXHAUSTED" and failure[0].retry
    durable = stream.acked
    assert answered(server.predict("small", x[:3])) == y[:3]

    # The client library waits for room and goes on by itself.
    with Client(f"127.0.0.1:{server.port}", retry=Retry(initial_delay=0.05, largest_delay=0.2)) as client:
        call = client.learn("full", stream_id="s")
        assert call.acknowledged >= durable

        def send() -> None:
            for _ in range(12):
                call.send(*BIG)

        sending = in_thread(send)
        until(lambda: call.resumptions >= 2, 60, "the refused stream is taken up again and again")
        assert answered(server.predict("small", x[:3])) == y[:3]
        give_room(front)
        sending.join(60)
        call.flush(60)
        acknowledged = call.acknowledged

        # No room for what is learned: the episode is neither lost nor parked.
        give_room(trainer, 2000)
        report = call.end_episode()
        until(lambda: "no room on the disk" in server.log.read_text(), 60)
        assert answered(server.predict("small", x[:3])) == y[:3]
        status: Any = server.learner("full").status
        assert (status.backlog.episodes_waiting, status.backlog.episodes_parked, status.model_version) == (1, 0, 0)

        # No room for the row of the version, either.
        give_room(front, journal_size(server) // 4)
        give_room(trainer)
        with refused("DISK_FULL"):
            server.create("no-room")
        assert server.learner("full").status.model_version == 0
        give_room(front)
        assert report.wait(60).learned is not None
        call.close()
    assert report.statistics is not None and report.statistics.examples == 60 * acknowledged
    assert server.learner("full").status.backlog.bytes == 0
    assert not list((Path(server.folder) / "data").rglob("*.tmp"))
    assert "Traceback" not in server.log.read_text()
