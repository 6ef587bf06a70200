"""What training needs of a learner. `learners.ServedLearner` is one; a test may bring its own.

The learner guards its own state: training reads facts, and says what happened by calling a method.
"""

from __future__ import annotations

from typing import Protocol

from sharp_server.prediction.model import Model
from sharp_server.storage.records import EpisodeRow
from sharp_server.teaching.lane import Teachable
from sharp_server.training.protocol import PhaseDone, Progressed, Started


class Trainee(Teachable, Protocol):
    """A learner, as far as training is concerned."""

    @property
    def changing(self) -> bool:
        """Whether a call is restoring, changing or deleting it, or waits to."""
        ...

    def next_episode(self) -> EpisodeRow | None:
        """The episode to be learned next; none while the learner is being changed or deleted."""
        ...

    async def until_consolidated(self) -> None:
        """Until lessons that are being made a version are one; no others are while the learner is being changed."""
        ...

    def begin_turn(self, episode: EpisodeRow) -> None:
        """The trainer turns to an episode."""
        ...

    def follow_turn(self, report: Started | Progressed | PhaseDone, attempts: int) -> None:
        """The trainer got on with it; `attempts` is how many tries an episode has."""
        ...

    def end_turn(self) -> None:
        """The trainer turns to something else, whatever came of it."""
        ...

    def update_episode(self, episode: EpisodeRow) -> None:
        """An episode is now this in the journal; whoever listens hears it if its fate is decided."""
        ...

    def release(self, nbytes: int) -> None:
        """Bytes are learned."""
        ...

    def serve(self, model: Model, head: tuple[str, bytes]) -> None:
        """Answer with another version from the next batch on."""
        ...
