"""What can't be run here: a thousand learners on twenty machines, of which one is lost every hour.

Events are simulated, decisions are not: the placement is the real function, and how long things take comes from what
`make test-cluster` measured (`benchmarks/results/cluster.json`). Taking up a learner is one after the other on a
machine, which is the cautious assumption: the real one does several at once.

    python -m reliability.cluster.simulation --days 30
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sharp_server.cluster.placement import LearnerPlacement, place

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
    """How long it took until a learner whose machine was killed answered Learn again, where that was measured."""
    if not path.exists():
        return {}
    disasters = json.loads(path.read_text())["disasters"]
    killed = [found["seconds_until_learn"] for found in disasters if "machine is killed" in found["what"]]
    return {"notice": killed[0]} if killed else {}


@app.command()
def command(
    days: Annotated[float, typer.Option(help="How long.")] = 30.0,
    learners: Annotated[int, typer.Option(help="How many.")] = 1000,
    machines: Annotated[int, typer.Option(help="How many.")] = 20,
    figures: Annotated[Path, typer.Option(help="What `make test-cluster` measured.")] = Path(
        "benchmarks/results/cluster.json"
    ),
) -> None:
    """Simulate a large cluster that loses a machine every hour."""
    conditions = Conditions(learners=learners, machines=machines, days=days, **measured(figures))  # type: ignore[arg-type]
    outcome = simulate(conditions)
    times, hours = len(outcome.ownerless), days * 24
    table = Table("what", "figure", box=box.SIMPLE_HEAD)
    table.add_row("machines lost", str(outcome.losses))
    table.add_row("learners per machine, least and most", f"{outcome.smallest_load} to {outcome.largest_load}")
    table.add_row("learners that lost their machine, per hour", f"{outcome.orphaned / hours:.1f}")
    table.add_row("learners moved to machines that came back, per hour", f"{outcome.moved / hours:.1f}")
    table.add_row("seconds without an owner: mean", f"{sum(outcome.ownerless) / max(1, times):.1f}")
    table.add_row("… 99 of 100 times at most", f"{outcome.percentile(0.99):.1f}")
    share = sum(outcome.ownerless) / (learners * days * 24 * _HOUR)
    table.add_row("share of the time in which Learn waits", f"{share:.2e}")
    table.add_row("times that nobody could predict either", str(outcome.unfollowed))
    Console().print(table)


if __name__ == "__main__":
    app()
