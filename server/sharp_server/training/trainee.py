"""What training needs of a learner. `learners.ServedLearner` is one; a test may bring its own.

The learner guards its own state: training reads facts, and says what happened by calling a method.
"""

from __future__ import annotations

from typing import Protocol

from sharp_engine import Label, LearnerConfig
from sharp_server.prediction.model import Model
from sharp_server.storage.records import EpisodeRow
from sharp_server.training.protocol import PhaseDone, Progressed, Started


class Trainee(Protocol):
    """A learner, as far as training is concerned."""

    @property
    def id(self) -> int:
        """Its id in the journal."""
        ...

    @property
    def uid(self) -> str:
        """The name of its folder."""
        ...

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def config(self) -> LearnerConfig:
        """The engine's config."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Of one example, once it is fixed."""
        ...

    @property
    def model(self) -> Model:
        """The version that serves."""
        ...

    @property
    def head(self) -> tuple[str, bytes] | None:
        """Name and SHA-256 of the snapshot that holds it."""
        ...

    def labels_by_ordinal(self) -> dict[int, Label]:
        """The classes met and not forgotten."""
        ...

    def next_episode(self) -> EpisodeRow | None:
        """The episode to be learned next; none while the learner is being changed or deleted."""
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
