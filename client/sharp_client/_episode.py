"""What is known of an episode between the producer and the learner."""

from __future__ import annotations

from ._answers import (
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeEvent,
    EpisodeLearned,
    EpisodeParked,
    EpisodeStarted,
    EpisodeStatistics,
    Progress,
)
from ._errors import EpisodeDiscardedError, EpisodeParkedError, SharpError

FINAL = frozenset({"learned", "parked", "discarded", "empty"})
"""The states in which an episode stays, unless an operator retries it."""


class EpisodeState:
    """The state of one episode, kept up to date by the events of its stream."""

    def __init__(self, mark: int | None = None) -> None:
        self.mark = mark
        """Sequence number of the EndEpisode that closed it. None: the server cut it."""
        self.state = "sent"
        """"sent", "waiting", "training"; then "learned", "parked", "discarded", or "empty" if it held no examples."""
        self.episode: int | None = None
        """Its number. None: not known yet."""
        self.closed: EpisodeClosed | None = None
        """What it holds and what closed it."""
        self.started: EpisodeStarted | None = None
        """The latest start of training."""
        self.progress: Progress | None = None
        """How far the trainer is."""
        self.parked: EpisodeParked | None = None
        """Why it could not be learned."""
        self.discarded: EpisodeDiscarded | None = None
        """Why it was given up."""
        self.learned: EpisodeLearned | None = None
        """The version that holds it, and what learning it did."""

    @property
    def finished(self) -> bool:
        """Whether it is learned, parked, discarded or empty."""
        return self.state in FINAL

    @property
    def model_version(self) -> int:
        """The version that holds it. 0: not learned."""
        return 0 if self.learned is None else self.learned.model_version

    @property
    def statistics(self) -> EpisodeStatistics | None:
        """What learning it did. None: not learned, or no longer known."""
        return None if self.learned is None else self.learned.statistics

    @property
    def fraction(self) -> float:
        """Share of the training that is done, 0 to 1."""
        if self.state == "learned":
            return 1.0
        return 0.0 if self.progress is None else self.progress.fraction

    def apply(self, event: EpisodeEvent) -> None:
        """Apply an event of this episode. Events may come twice after a reconnection."""
        self.episode = event.episode
        if event.closed is not None:
            self.closed = event.closed
            if self.state == "sent":
                self.state = "waiting"
        elif event.started is not None:
            self.started, self.state = event.started, "training"
        elif event.progress is not None:
            self.progress, self.state = event.progress, "training"
        elif event.learned is not None:
            self.learned, self.state = event.learned, "learned"
        elif event.parked is not None:
            self.parked, self.state = event.parked, "parked"
        elif event.discarded is not None:
            self.discarded, self.state = event.discarded, "discarded"

    def failure(self) -> SharpError | None:
        """The exception for an episode that was not learned."""
        if self.state == "parked" and self.parked is not None:
            parked, reason = self.parked, self.parked.reason.replace("_", " ")
            text = f"episode {self.episode} was parked after {parked.attempts} attempts, {reason}: {parked.detail}"
            return EpisodeParkedError(text, episode=self.episode or 0, park_reason=self.parked.reason)
        if self.state == "discarded" and self.discarded is not None:
            text = f"episode {self.episode} was discarded: {self.discarded.reason.replace('_', ' ')}"
            return EpisodeDiscardedError(text, episode=self.episode or 0, discard_reason=self.discarded.reason)
        return None

    def __repr__(self) -> str:
        number = "?" if self.episode is None else self.episode
        return f"<{type(self).__name__} episode={number} state={self.state} model_version={self.model_version}>"
