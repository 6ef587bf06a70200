"""Whose turn it is: by time given, so that small episodes pass large ones and nobody starves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharp_server.training.turn_order import TurnOrder


@dataclass(eq=False)
class Waiting:
    """A learner with so many phases left, each of so many seconds."""

    name: str
    seconds: float
    phases: int

    def next_episode(self) -> Any:
        return object() if self.phases else None


def run(order: TurnOrder, most: int = 1000) -> list[str]:
    """Give turns until nobody has anything left."""
    names: list[str] = []
    while (ready := order.ready()) and len(names) < most:
        chosen: Any = ready[0]
        order.begin(chosen)
        chosen.phases -= 1
        order.charge(chosen, chosen.seconds)
        names.append(chosen.name)
    return names


def test_small_episodes_are_learned_while_a_large_one_waits_for_the_time_it_had() -> None:
    learners: list[Any] = [Waiting("large", 20.0, 5)]
    order = TurnOrder(learners)
    order.begin(learners[0])
    learners[0].phases -= 1
    learners += [Waiting(f"small {i}", 0.1, 6) for i in range(10)]  # they come during its first phase
    order.ready()
    order.charge(learners[0], 20.0)
    names = run(order)
    assert "large" not in names[:60] and names[60:] == ["large"] * 4


def test_who_had_nothing_to_learn_saves_up_no_time() -> None:
    busy, late = Waiting("busy", 1.0, 100), Waiting("late", 1.0, 0)
    learners: list[Any] = [busy, late]
    order = TurnOrder(learners)
    assert run(order, 50) == ["busy"] * 50
    late.phases = 10
    names = run(order, 20)
    assert names.count("late") == 10 and "late, late" not in ", ".join(names)


@given(st.lists(st.tuples(st.floats(0.01, 10.0), st.integers(1, 8)), min_size=1, max_size=6))
def test_everybody_gets_all_its_turns_and_nobody_gets_far_ahead(shapes: list[tuple[float, int]]) -> None:
    learners: list[Any] = [Waiting(str(i), seconds, phases) for i, (seconds, phases) in enumerate(shapes)]
    order = TurnOrder(learners)
    longest = max(seconds for seconds, _ in shapes)
    while ready := order.ready():
        chosen: Any = ready[0]
        order.begin(chosen)
        chosen.phases -= 1
        order.charge(chosen, chosen.seconds)
        spent = [order.of(learner).spent for learner in order.ready()]
        assert not spent or max(spent) - min(spent) <= longest + 1e-6
    assert all(learner.phases == 0 for learner in learners)


def test_a_learner_that_waits_after_a_failure_has_no_turn_and_comes_back() -> None:
    learners: list[Any] = [Waiting("failed", 1.0, 1), Waiting("other", 1.0, 1)]
    order = TurnOrder(learners)
    order.defer(learners[0], 60.0)
    assert [trainee.name for trainee in order.ready()] == ["other"]
    order.defer(learners[0], 0.0)
    assert len(order.ready()) == 2
