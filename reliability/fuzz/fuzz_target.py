"""The server that is attacked, what is planted in it, and keeping what the attack leaves behind within bounds.

Two learners are planted: nothing hostile names them but to predict. What they answer, and how far the batches are
durable that were acknowledged and not learned yet, must be the same before and after. Everything else is fair game.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np

from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.fuzz import seeds
from reliability.fuzz.methods import Method, offered
from reliability.fuzz.snapshots import Parts
from sharp_client import Client, LearnerNotFoundError, LearnStream, OpenEpisodeWarning

PLANTED = (seeds.PLANTED, "pictures")
_WAIT = 120.0
_KEPT = "kept"
"""The stream whose batches were acknowledged and are not to be learned."""
SETTINGS = {
    "http.enabled": True,
    "http.port": 0,
    "limits.message_bytes": 8 << 20,
    "limits.learners": 12,
    "limits.classes": 200,
    "limits.unlearned_bytes": 4 << 20,
    "limits.snapshot_bytes": 160 << 20,
    "limits.manual_snapshots": 10,
    "trainer.memory_bytes": 6 << 30,
    "trainer.niceness": 10,
    "trainer.retry_seconds": 0.05,
    "log.level": "warning",
    "stop.grace_seconds": 10,
}

_KNOWN = {seeds.PLANTED: 40 + 3 * 16, "pictures": 24}
"""Examples sent to each: those of the kept stream count too, a moment after a start."""


class FuzzTarget:
    """A server with planted learners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder.name.encode()
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._start()
        self._plant()
        self.before = self.state()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start(self) -> None:
        self.server = self._exits.enter_context(ServerProcess(self.folder, SETTINGS, environment=ONE_THREAD).start())
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = self._exits.enter_context(grpc.insecure_channel(self.server.address, options))
        self.client = self._exits.enter_context(Client(self.server.address, timeout=_WAIT))
        self.methods: tuple[Method, ...] = offered(self.channel)

    def restart(self) -> int | None:
        """End the server as an operator would, start it again on the same folder; returns its exit code."""
        server = self.server
        self._exits.close()
        self._start()
        return server.exit_code

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        return self.server.running

    # ---- what must stay ---------------------------------------------------------------------------------------------

    def _plant(self) -> None:
        self._teach(seeds.PLANTED)
        with self._kept_stream() as stream:
            for _ in range(3):
                stream.send(seeds.examples(), [i % 2 for i in range(16)])
            stream.flush()
        self._teach("pictures", _pictures())
        self.client.predict("pictures", [seeds.encoded("PNG")])  # loads what decodes images, which takes a while
        self.tidy()
        file = self.folder / "good.safetensors"
        self.client.export_snapshot(seeds.VICTIM, file)
        self.parts = Parts(file)

    @contextlib.contextmanager
    def _kept_stream(self) -> Iterator[LearnStream]:
        """A stream whose examples stay open on purpose."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OpenEpisodeWarning)
            with self.client.learn(seeds.PLANTED, stream_id=_KEPT) as stream:
                yield stream

    def _teach(self, name: str, x: Any = None) -> None:
        self.client.create_learner(name, overrides=seeds.SMALL, seed=1)
        x = seeds.examples(40) if x is None else x
        with self.client.learn(name) as stream:
            stream.send(x, [i % 2 for i in range(len(x))])
            stream.end_episode().wait(_WAIT)

    def state(self) -> dict[str, Any]:
        """What must be the same after everything."""
        found: dict[str, Any] = {}
        for name, x in ((seeds.PLANTED, seeds.examples(20, seed=5)), ("pictures", _pictures()[:4])):
            answer = self.client.predict(name, x, min_examples=_KNOWN[name])
            found[name] = {
                "labels": list(answer.labels),
                "vote_shares": answer.vote_shares.tolist(),
                "distances": answer.distances.tolist(),
                "model_version": answer.model_version,
            }
        with self._kept_stream() as stream:
            found["durable"], found["open_examples"] = stream.opened.last_durable_sequence, stream.opened.open_examples
        return found

    # ---- bounds -----------------------------------------------------------------------------------------------------

    def have_victim(self) -> None:
        """Tidy up at once if the victim was deleted: whatever comes next would find nothing to attack."""
        try:
            self.client.get_learner(seeds.VICTIM)
        except LearnerNotFoundError:
            self.tidy()

    def tidy(self) -> None:
        """Delete what the attack made, and have a victim that has learned something."""
        victim = False
        for learner in self.client.list_learners():
            status = learner.status
            sound = learner.name == seeds.VICTIM and status.model_version and not status.backlog.episodes_parked
            if sound and not status.backlog.bytes and list(learner.input_shape) == [seeds.FEATURES]:
                victim = bool(self.client.list_snapshots(seeds.VICTIM))
            if learner.name not in PLANTED and not (learner.name == seeds.VICTIM and victim):
                with contextlib.suppress(LearnerNotFoundError):
                    self.client.delete_learner(learner.name)
        if not victim:
            self._teach(seeds.VICTIM)
        self.snapshot = self.client.list_snapshots(seeds.VICTIM)[0].id

    def log_faults(self) -> list[str]:
        """Lines of the server's log that speak of a fault of its own."""
        marks = ("incident", "Traceback", "never retrieved", "Unexpected", "Exception in callback", "unhandled")
        text = self.server.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if any(mark in line for mark in marks)]


def _pictures() -> np.ndarray[Any, np.dtype[np.uint8]]:
    x = np.zeros((24, 1, 8, 8), np.uint8)
    x[::2, :, :4] = 200
    x[1::2, :, 4:] = 200
    return x + np.arange(24, dtype=np.uint8)[:, None, None, None]


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[FuzzTarget]:
    """A target in a folder with a name that must never leave the server."""
    place = folder / "data-of-the-server-3f9a"
    place.mkdir()
    with FuzzTarget(place) as target:
        yield target
