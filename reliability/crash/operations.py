"""What an operator does between two episodes of the numbered stream: keep a snapshot, forget, restore, undo, in turn.

Everything sent before is learned by then, so the outcome is a matter of the stream alone: the learner that is killed
and the one that is not come out the same. Each operation is asked for as often as it takes, and happens once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from reliability.crash.stream import NumberedStream
from sharp_client import Client, DeadlineError, LearnerBusyError, UnavailableError, VersionNotFoundError

T = TypeVar("T")


class Operator:
    """Works on one learner."""

    def __init__(self, client: Client, learner: str, stream: NumberedStream) -> None:
        self._client, self._learner, self._stream = client, learner, stream
        self._snapshot = ""
        """The one that was kept last."""
        self.done: Counter[str] = Counter()
        self.under_way = threading.Event()
        """Whether it is at it."""
        self.named_forgotten: list[str] = []
        """Classes that were answered after they were forgotten."""

    def work(self, episode: int) -> None:
        """Do what comes after an episode."""
        kind = self._stream.operation(episode)
        if kind is None:
            return
        self.under_way.set()
        try:
            getattr(self, f"_{kind}")(episode)
            self.done[kind] += 1
        finally:
            self.under_way.clear()

    def _insist(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except (UnavailableError, DeadlineError, LearnerBusyError):  # busy with what a lost call began
                continue

    def _keep(self, episode: int) -> None:
        self._snapshot = self._insist(lambda: self._client.create_snapshot(self._learner)).id

    def _restore(self, episode: int) -> None:
        """Twice is the same as once."""
        self._insist(lambda: self._client.restore_snapshot(self._learner, self._snapshot))

    def _forget(self, episode: int) -> None:
        label = self._stream.forgotten(episode)
        self._insist(lambda: self._client.forget_class(self._learner, label))
        answer = self._insist(lambda: self._client.predict(self._learner, self._stream.probes()))
        if label in answer.labels:
            self.named_forgotten.append(f"{label!r} was answered after episode {episode}, where it was forgotten")

    def _undo(self, episode: int) -> None:
        """The version is named, so that a second try finds it undone."""
        serving = self._insist(lambda: self._client.get_learner(self._learner)).status.model_version
        try:
            self._insist(lambda: self._client.undo_version(self._learner, model_version=serving))
        except VersionNotFoundError:
            return
