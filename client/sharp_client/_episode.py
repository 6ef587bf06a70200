"""What is known of an episode on its way from the producer into the learner."""

from __future__ import annotations

from sharp.v1 import episode_pb2

from ._errors import EpisodeDiscardedError, EpisodeParkedError, SharpError

SETTLED = frozenset({"learned", "parked", "discarded", "empty"})
"""The states that an episode stays in, unless an operator has it retried."""


class EpisodeState:
    """The state of one episode, kept up to date by the events of its stream."""

    def __init__(self, mark: int | None = None) -> None:
        self.mark = mark
        """Sequence number of the EndEpisode that closed it. None: the server cut it."""
        self.state = "sent"
        """sent, waiting, training; then learned, parked, discarded, or empty if it held no examples."""
        self.episode: int | None = None
        """Its number. None: the server has not told it yet."""
        self.closed: episode_pb2.EpisodeClosed | None = None
        """What it holds and what closed it."""
        self.started: episode_pb2.EpisodeStarted | None = None
        """The latest start of training."""
        self.progress: episode_pb2.Progress | None = None
        """How far the trainer is."""
        self.parked: episode_pb2.EpisodeParked | None = None
        """Why it could not be learned."""
        self.discarded: episode_pb2.EpisodeDiscarded | None = None
        """Why it was given up."""
        self.learned: episode_pb2.EpisodeLearned | None = None
        """The version that holds it, and what learning it did."""

    @property
    def settled(self) -> bool:
        """Whether it is learned, parked, discarded or empty."""
        return self.state in SETTLED

    @property
    def model_version(self) -> int:
        """The version that holds it. 0: not learned."""
        return 0 if self.learned is None else self.learned.model_version

    @property
    def statistics(self) -> episode_pb2.EpisodeStatistics | None:
        """What learning it did. None: not learned, or no longer known."""
        return None if self.learned is None or not self.learned.HasField("statistics") else self.learned.statistics

    @property
    def fraction(self) -> float:
        """Share of the training that is done, 0 to 1."""
        if self.state == "learned":
            return 1.0
        return 0.0 if self.progress is None else self.progress.fraction

    def apply(self, event: episode_pb2.EpisodeEvent) -> None:
        """Take in an event of this episode. Events may come twice after a reconnection."""
        self.episode = event.episode
        kind = event.WhichOneof("event")
        if kind == "closed":
            self.closed = event.closed
            if self.state in ("sent", "empty"):
                self.state = "waiting"
        elif kind == "started":
            self.started, self.state = event.started, "training"
        elif kind == "progress":
            self.progress, self.state = event.progress, "training"
        elif kind == "learned":
            self.learned, self.state = event.learned, "learned"
        elif kind == "parked":
            self.parked, self.state = event.parked, "parked"
        elif kind == "discarded":
            self.discarded, self.state = event.discarded, "discarded"

    def failure(self) -> SharpError | None:
        """The exception for an episode that was not learned."""
        if self.state == "parked" and self.parked is not None:
            name = episode_pb2.ParkReason.Name(self.parked.reason).removeprefix("PARK_REASON_")
            text = f"episode {self.episode} was parked after {self.parked.attempts} tries: {name}, {self.parked.detail}"
            return EpisodeParkedError(text, episode=self.episode or 0, park_reason=self.parked.reason)
        if self.state == "discarded" and self.discarded is not None:
            name = episode_pb2.DiscardReason.Name(self.discarded.reason).removeprefix("DISCARD_REASON_")
            text = f"episode {self.episode} was discarded: {name}"
            return EpisodeDiscardedError(text, episode=self.episode or 0, discard_reason=self.discarded.reason)
        return None

    def __repr__(self) -> str:
        number = "?" if self.episode is None else self.episode
        return f"<{type(self).__name__} episode={number} state={self.state} model_version={self.model_version}>"
