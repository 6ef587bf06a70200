"""When the learned metric answers for an episode, and when the whole episode is learned."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.datasets import Examples
from benchmarks.speed.timing import Spent, now
from sharp_engine import Learner, Progress


@dataclass(frozen=True)
class EpisodeCost:
    """What one episode took."""

    whole: Spent
    """Network included."""
    metric: Spent
    """The part until the metric answered; the whole where a learner has none."""


def learn_timed(learner: Learner, episode: Examples) -> EpisodeCost:
    """Learn one episode."""
    ready: list[Spent] = []

    def observe(progress: Progress) -> None:
        if progress.event == "metric-ready":
            ready.append(now())

    start = now()
    learner.learn_episode(episode.x, episode.y, observer=observe)
    end = now()
    return EpisodeCost(end - start, (ready[0] if ready else end) - start)
