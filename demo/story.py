"""The demo from beginning to end: learn, compare, kill, come back, forget, stop.

Everything about the learner is seen through the client, as an app would see it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.plain_network import PlainNetwork
from demo.record import LEAST_ACCURACY, Episode, Record, percent
from demo.view import Lesson, View
from devtools.server_process import ServerProcess
from sharp_cli.data import LabelledData, Part, load
from sharp_client import Client, Learner, LearnStream, Prediction
from sharp_engine import preset

CLASSES_PER_EPISODE = 2
BATCH = 64
"""Examples of one message."""
NAME = "digits"

Pause = Callable[[Record, str], None]
"""What happens before the end, with what was recorded and the address of the learner's page."""


class Story:
    """One run against a server of its own."""

    def __init__(
        self, folder: Path, view: View, episodes: int, forget: int, seed: int = 0, pause: Pause | None = None
    ) -> None:
        everything = load("digits")
        self._episodes = everything.part(Part.TRAIN).episodes(CLASSES_PER_EPISODE, seed)[:episodes]
        self._test = everything.part(Part.TEST)
        self._forget, self._seed, self._view, self._pause = forget, seed, view, pause
        self._server = ServerProcess(folder, {"http.enabled": True, "http.port": 0}, as_command=True)
        self._plain = PlainNetwork(preset("default"), everything.x.shape[1:], len(everything.classes), seed)
        self.record = Record(test_examples=len(self._test))

    def run(self) -> Record:
        """Run it."""
        begun = time.monotonic()
        view = self._view
        with self._server as server:
            view.heading("A server, with its storage in a folder")
            with view.working("starting sharp serve"):
                server.start()
            view.line(f"sharp serve listens on {server.address}; look at it: {self.page}")
            with Client(server.address) as client:
                self._learn(client)
                before, version = self._take_snapshot(client)
            self._kill_and_restart()
            with Client(server.address) as client:
                self._compare(client.learner(NAME), before, version)
                self._forget_class(client.learner(NAME))
            self.record.seconds = time.monotonic() - begun
            if self._pause is not None:
                self._pause(self.record, self.page)
            view.heading("The end")
            code = server.stop()
            self._promise("SIGTERM stops the server in good order", code == 0, f"exit code {code}")
        return self.record

    @property
    def page(self) -> str:
        """The address of the learner's page, while the server runs."""
        return f"http://127.0.0.1:{self._server.http_port}/#/learners/{NAME}"

    # ---- learning -----------------------------------------------------------------------------------------------

    def _learn(self, client: Client) -> None:
        self._view.heading(f"{len(self._episodes)} episodes of {CLASSES_PER_EPISODE} digits; no episode sees another's")
        learner = client.learner(NAME)
        learner.create(seed=self._seed)
        with learner.learn() as stream:
            for number, episode in enumerate(self._episodes, 1):
                self._learn_episode(learner, stream, number, episode)
        self.record.architecture = learner.get().architecture
        last = self.record.episodes[-1]
        self._promise(
            f"SHARP knows at least {percent(LEAST_ACCURACY)} of everything it was taught",
            last.sharp >= LEAST_ACCURACY,
            f"{percent(last.sharp)} of {len(self.record.classes)} digits",
        )
        newest = np.mean([last.plain_by_class[label] for label in last.classes])
        older = np.mean([share for label, share in last.plain_by_class.items() if label not in last.classes])
        self._promise(
            "the plain network knows the newest digits and has forgotten the others",
            bool(newest > 0.8 and older < 0.5),
            f"{percent(float(newest))} of the newest, {percent(float(older))} of the others",
        )

    def _learn_episode(self, learner: Learner, stream: LearnStream, number: int, episode: LabelledData) -> None:
        names = " and ".join(map(str, episode.classes))
        title = f"episode {number} of {len(self._episodes)}: {names}, {len(episode)} examples"
        lesson = Lesson(title, len(episode), stream, stream.examples_sent)
        with self._view.lesson(lesson):
            for batch in episode.batches(BATCH):
                stream.send(batch.x, batch.y)
            lesson.report = report = stream.end_episode()
            for lesson.plain in self._plain.learn(episode.x, [int(label) for label in episode.y]):
                pass  # the view looks at it
            report.wait()
        seen = {*self.record.classes, *(int(label) for label in episode.classes)}
        asked = self._test.take([i for i, label in enumerate(self._test.y) if label in seen])
        evaluation = learner.evaluate(asked.x, asked.y, min_model_version=report.model_version)
        plain, plain_by_class = _judge(asked.y, self._plain.predict(asked.x))
        done = Episode(
            classes=tuple(int(label) for label in episode.classes),
            examples=len(episode),
            seconds=report.statistics.training_time if report.statistics is not None else 0.0,
            sharp=evaluation.accuracy,
            plain=plain,
            sharp_by_class={int(label): share for label, share in evaluation.per_class.items()},
            plain_by_class=plain_by_class,
        )
        self.record.episodes.append(done)
        self._view.episode(number, done)

    # ---- coming back --------------------------------------------------------------------------------------------

    def _take_snapshot(self, client: Client) -> tuple[Prediction, int]:
        self._view.heading("A snapshot, and a SIGKILL")
        learner = client.learner(NAME)
        snapshot = learner.snapshot("the demo's")
        self._view.line(f"snapshot {snapshot.id}: version {snapshot.model_version}, {snapshot.size_bytes:,} bytes")
        return learner.predict(self._test.x, novelty=True), snapshot.model_version

    def _kill_and_restart(self) -> None:
        self._server.kill()
        self._view.line("the server was killed with SIGKILL: nothing is left of it but its folder")
        with self._view.working("starting it again from there"):
            self._server.start()

    def _compare(self, learner: Learner, before: Prediction, version: int) -> None:
        after = learner.predict(self._test.x, novelty=True)
        same = after.model_version == version and all(
            np.array_equal(getattr(before, name), getattr(after, name))
            for name in ("labels", "vote_shares", "distances", "novelties")
        )
        seen = f"version {after.model_version}, {len(after)} examples: labels, shares, distances, novelty"
        self._promise("after the restart every prediction is the same, bit for bit", same, seen)

    # ---- forgetting ---------------------------------------------------------------------------------------------

    def _forget_class(self, learner: Learner) -> None:
        label = self._forget
        self._view.heading(f"Forget {label}, please")
        forgotten = learner.forget(label, older_snapshots="delete")
        self._view.line(
            f"{forgotten.ltm_entries} long-term and {forgotten.stm_entries} short-term memories removed, "
            f"{len(forgotten.snapshots_deleted)} snapshots that held it deleted"
        )
        answer = learner.predict(self._test.x, top_k=10, min_model_version=forgotten.model_version)
        named = {*answer.labels.tolist(), *(score.label for scores in answer.top_classes for score in scores)}
        held = [snapshot.id for snapshot in learner.snapshots() if label in snapshot.classes]
        seen = f"{len(answer)} examples and all classes they come near: {', '.join(map(str, sorted(named)))}"
        self._promise(f"no prediction names {label} any more", label not in named, seen)
        self._promise(f"no snapshot holds {label}", not held, f"{len(learner.snapshots())} snapshots left")
        others = [i for i, truth in enumerate(self._test.y) if truth in set(self.record.classes) - {label}]
        accuracy, _ = _judge([self._test.y[i] for i in others], answer.labels[others])
        self._view.line(f"SHARP knows {percent(accuracy)} of the other digits")
        self.record.forgotten, self.record.accuracy_of_the_others = label, accuracy

    def _promise(self, what: str, holds: bool, seen: str) -> None:
        self._view.promise(self.record.promise(what, holds, seen))


def _judge(truth: Sequence[Any], answers: NDArray[Any]) -> tuple[float, Mapping[int, float]]:
    """Accuracy, in all and by class."""
    labels = np.asarray(truth)
    right = labels == answers
    return float(right.mean()), {int(label): float(right[labels == label].mean()) for label in np.unique(labels)}
