"""What a learner reports of its work while it works, and how it is asked to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from sharp_engine.errors import Cancelled
from sharp_engine.labels import Label
from sharp_engine.network.state import Network, rank_counts

Event = Literal[
    "episode-started", "metric-ready", "phase-started", "step", "epoch-ended", "phase-ended", "episode-learned"
]

_SECONDS_BETWEEN_STEPS = 0.25
"""Steps are reported at most this often."""


@dataclass(frozen=True)
class Progress:
    """Where an episode stands. At `phase-ended` and `episode-learned` the learner may be saved by the observer."""

    event: Event
    episode: int
    """Number of the episode, from 1."""
    phase: int
    """Number of the phase, from 1; 0 before the first."""
    phases: int
    epoch: int
    """Number of the epoch within the phase, from 1; 0 before the first."""
    epochs: int
    loss: float | None
    """Mean loss of the epoch so far (of the phase, when it ended); absent before the first step."""
    ranks: dict[str, dict[int, int]]
    """Per layer: how many units have which rank."""
    seconds: float
    """Spent on this episode so far."""
    seconds_left: float | None
    """Estimate for the rest of the episode; absent before the first step."""
    examples_per_second: float | None


Observer: TypeAlias = Callable[[Progress], None]


class Cancel(Protocol):
    """Anything with `is_set`, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether to stop at the next step."""
        ...


@dataclass(frozen=True)
class EpisodeReport:
    """What learning an episode came to."""

    episode: int
    """Number of the episode, from 1."""
    classes: tuple[Label, ...]
    new_classes: tuple[Label, ...]
    """Those of `classes` that were never learned before, or were forgotten."""
    examples: int
    losses: tuple[float, ...]
    """Mean loss of each phase; empty where the network did not learn the episode."""
    recruited: dict[str, int]
    """Per layer: units that left the idle state."""
    seconds: float


@dataclass(frozen=True)
class TeachReport:
    """What teaching came to."""

    examples: int
    classes: tuple[Label, ...]
    new_classes: tuple[Label, ...]
    """Those of `classes` that were not known before."""
    corrections: int
    """How many would have been answered wrong, and are kept as corrections."""


@dataclass
class Reporter:
    """Counts steps, notifies the observer, and raises Cancelled when asked to."""

    observer: Observer | None
    cancel: Cancel | None
    episode: int
    phases: int
    seconds_before: float
    epochs: int = 0
    phase: int = 0
    epoch: int = 0
    steps_left: int = 0
    loss: float | None = None
    _steps: int = 0
    _examples: int = 0
    _started: float = field(default_factory=lambda: time.monotonic())
    _last: float = 0.0

    @property
    def seconds(self) -> float:
        """Spent on the episode so far."""
        return self.seconds_before + time.monotonic() - self._started

    def check_cancelled(self) -> None:
        """Raise Cancelled if the caller asked to stop."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"episode {self.episode} was cancelled in phase {self.phase} of {self.phases}")

    def step(self, network: Network, examples: int, loss_so_far: Callable[[], float]) -> None:
        """One optimiser step is done."""
        self._steps += 1
        self._examples += examples
        self.steps_left -= 1
        self.check_cancelled()
        if self.observer is not None and time.monotonic() - self._last >= _SECONDS_BETWEEN_STEPS:
            self.loss = loss_so_far()
            self.notify("step", network)

    def notify(self, event: Event, network: Network) -> None:
        """Call the observer, if there is one, with what is known of the work so far."""
        if self.observer is None:
            return
        self._last = time.monotonic()
        elapsed = self._last - self._started
        self.observer(
            Progress(
                event=event,
                episode=self.episode,
                phase=self.phase,
                phases=self.phases,
                epoch=self.epoch,
                epochs=self.epochs,
                loss=self.loss,
                ranks={layer.name: rank_counts(layer.ranks) for layer in network.layers},
                seconds=self.seconds,
                seconds_left=elapsed / self._steps * self.steps_left if self._steps else None,
                examples_per_second=self._examples / elapsed if self._examples and elapsed > 0 else None,
            )
        )
