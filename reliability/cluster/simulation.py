"""What can't be run here: a thousand learners on twenty machines, of which one is lost every hour.

Events are simulated, decisions are not: the placement is the real function, and how long things take comes from what
`make test-cluster` measured (`benchmarks/results/cluster.json`). Taking up a learner is one after the other on a
machine, which is the cautious assumption: the real one does several at once. So is another one: the time from a new
owner until a producer is acknowledged again counts as taking up a learner, for every one of them.

    python -m reliability.cluster.simulation --days 30
"""

from __future__ import annotations

import json
import random
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.reporting.files import write_json
from sharp_server.cluster.placement import place
from sharp_server.storage.board import LearnerPlacement

app = typer.Typer(add_completion=False)

_HOUR = 3600.0


@dataclass(frozen=True)
class Conditions:
    """What is simulated, and how long its parts take, in seconds."""

    learners: int = 1000
    machines: int = 20
    days: float = 30.0
    hours_between_losses: float = 1.0
    minutes_away: float = 10.0
    """After which a lost machine is there again, with nothing."""
    notice: float = 4.0
    """From a machine's death until its learners have new owners on paper: three probes and a look."""
    take_up: float = 0.5
    """Per learner: claim, version from the bucket, loaded."""
    hand_over: float = 1.0
    """Per learner that leaves a living machine: released by one, taken up by the other."""
    replicas: int = 1
    seed: int = 0


@dataclass
class Outcome:
    """What came of it."""

    losses: int = 0
    orphaned: int = 0
    """Learners whose machine was lost, counted each time."""
    moved: int = 0
    """Learners that left a living machine for one that came back."""
    ownerless: list[float] = field(default_factory=list)
    """Seconds without an owner, of each time."""
    unfollowed: int = 0
    """Times that neither owner nor follower of a learner was left: predictions waited too."""
    largest_load: int = 0
    smallest_load: int = 0

    def percentile(self, share: float) -> float:
        """Seconds without an owner that this share of the times did not exceed."""
        ordered = sorted(self.ownerless)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def summary(self, conditions: Conditions) -> dict[str, float]:
        """What is reported of it: per hour, in seconds, as shares."""
        hours, times = conditions.days * 24, max(1, len(self.ownerless))
        return {
            "machines_lost": self.losses,
            "least_learners_on_a_machine": self.smallest_load,
            "most_learners_on_a_machine": self.largest_load,
            "learners_that_lost_their_machine_per_hour": self.orphaned / hours,
            "learners_moved_to_machines_that_came_back_per_hour": self.moved / hours,
            "seconds_without_an_owner_mean": sum(self.ownerless) / times,
            "seconds_without_an_owner_p99": self.percentile(0.99),
            "seconds_without_an_owner_most": self.percentile(1.0),
            "share_of_time_in_which_learn_waits": sum(self.ownerless) / (conditions.learners * hours * _HOUR),
            "times_that_nobody_could_predict": self.unfollowed,
        }


def simulate(conditions: Conditions) -> Outcome:
    """Lose machines at random times, and let the real placement decide."""
    chance, outcome = random.Random(conditions.seed), Outcome(smallest_load=conditions.learners)
    there = {f"machine-{number:02d}" for number in range(conditions.machines)}
    replicas = {f"learner-{number:04d}": conditions.replicas for number in range(conditions.learners)}
    placed = place([LearnerPlacement(uid, None) for uid in replicas], there, replicas)
    now = 0.0
    back: list[tuple[float, str]] = []  # when which machine comes back
    end = conditions.days * 24 * _HOUR
    while True:
        now += chance.expovariate(1 / (conditions.hours_between_losses * _HOUR))
        if now > end:
            return outcome
        for _, machine in [event for event in back if event[0] <= now]:
            there.add(machine)
            before, placed = placed, place(placed.values(), there, replicas)
            moved = sum(before[uid].owner != placed[uid].owner for uid in placed)
            outcome.moved += moved
            outcome.ownerless += [conditions.hand_over] * moved
        back = [event for event in back if event[0] > now]
        lost = chance.choice(sorted(there))
        there.discard(lost)
        back.append((now + conditions.minutes_away * 60, lost))
        _lose(conditions, outcome, lost, there, placed)
        before, placed = placed, place(_without(placed, lost), there, replicas)
        taken: dict[str, int] = {}
        for uid, placement in placed.items():
            if before[uid].owner == lost and placement.owner is not None:
                taken[placement.owner] = taken.get(placement.owner, 0) + 1
                outcome.ownerless.append(conditions.notice + taken[placement.owner] * conditions.take_up)
        loads = [sum(placement.owner == machine for placement in placed.values()) for machine in sorted(there)]
        outcome.largest_load = max(outcome.largest_load, *loads)
        outcome.smallest_load = min(outcome.smallest_load, *loads)


def _lose(
    conditions: Conditions, outcome: Outcome, lost: str, there: set[str], placed: dict[str, LearnerPlacement]
) -> None:
    outcome.losses += 1
    for placement in placed.values():
        if placement.owner == lost:
            outcome.orphaned += 1
            outcome.unfollowed += not any(node in there for node in placement.followers)


def _without(placed: dict[str, LearnerPlacement], lost: str) -> list[LearnerPlacement]:
    return [
        LearnerPlacement(
            placement.uid,
            None if placement.owner == lost else placement.owner,
            tuple(node for node in placement.followers if node != lost),
        )
        for placement in placed.values()
    ]


def measured(path: Path) -> dict[str, float]:
    """How long the parts took when a machine was killed and came back."""
    found: dict[str, Any] = json.loads(path.read_text())
    killed = next(disaster for disaster in found["disasters"] if "machine is killed" in disaster["what"])
    notice = killed["seconds_until_owner"]
    take_up = killed["seconds_until_learn"] - notice
    return {
        "notice": notice,
        "take_up": take_up,
        "hand_over": statistics.median(found["hand_over_seconds"]) + take_up,
    }


@app.command()
def command(
    days: Annotated[float, typer.Option(help="How long.")] = 30.0,
    learners: Annotated[int, typer.Option(help="How many.")] = 1000,
    machines: Annotated[int, typer.Option(help="How many.")] = 20,
    figures: Annotated[Path, typer.Option(help="What `make test-cluster` measured.")] = Path(
        "benchmarks/results/cluster.json"
    ),
    output: Annotated[Path | None, typer.Option(help="JSON file for the outcome.")] = None,
) -> None:
    """Simulate a large cluster that loses a machine every hour."""
    conditions = Conditions(learners=learners, machines=machines, days=days, **measured(figures))  # type: ignore[arg-type]
    summary = simulate(conditions).summary(conditions)
    table = Table("what", "figure", box=box.SIMPLE_HEAD)
    for name, figure in summary.items():
        table.add_row(name.replace("_", " "), f"{figure:.4g}")
    Console().print(table)
    if output is not None:
        write_json(output, {"cluster_simulation": {"conditions": asdict(conditions), "outcome": summary}})


if __name__ == "__main__":
    app()
