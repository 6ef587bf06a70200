"""Whose turn it is: small episodes pass large ones, equal ones go one after the other, and nobody starves."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharp_server.training.turn_order import TurnOrder, work_of


@dataclass(eq=False)
class Waiting:
    """A learner with episodes of so many phases, each of so many seconds."""

    name: str
    seconds: float
    phases: int
    episodes: int = 1
    done: int = 0
    number: int = 1

    def next_episode(self) -> Any:
        return SimpleNamespace(id=(self.name, self.number), examples=0) if self.episodes else None


class World:
    """A trainer and a clock; work is guessed as `guess` times what it is."""

    def __init__(self, *learners: Waiting, guess: float = 1.0) -> None:
        self.now, self.learners = 0.0, list(learners)
        self.order = TurnOrder(
            self.learners,  # type: ignore[arg-type]
            lambda trainee, _: guess * 1e4 * trainee.seconds * trainee.phases,  # type: ignore[attr-defined]
            lambda: self.now,
        )
        self.learned: list[str] = []
        self.slices: list[str] = []

    def phase(self) -> None:
        """One phase of whoever's turn it is."""
        chosen: Any = self.order.ready()[0]
        self.order.begin()
        self.slices.append(chosen.name)
        self.now += chosen.seconds
        chosen.done += 1
        over = chosen.done == chosen.phases
        if over:
            chosen.done, chosen.episodes, chosen.number = 0, chosen.episodes - 1, chosen.number + 1
            self.learned.append(chosen.name)
        self.order.end(chosen, over)

    def run(self, phases: int = 10_000) -> None:
        while phases and self.order.ready():
            self.phase()
            phases -= 1


def test_small_episodes_that_come_during_a_large_one_are_learned_first_each_in_one_go() -> None:
    world = World(Waiting("large", 20.0, 5))
    world.phase()
    world.learners += [Waiting(f"small {i}", 0.1, 6) for i in range(10)]
    world.run()
    assert world.learned == [*(f"small {i}" for i in range(10)), "large"]
    assert world.slices[1:61] == [f"small {i}" for i in range(10) for _ in range(6)], "none is left half done"


def test_equal_episodes_are_finished_one_after_the_other() -> None:
    world = World(*(Waiting(str(i), 1.0, 4) for i in range(5)))
    world.run()
    assert world.slices == [str(i) for i in range(5) for _ in range(4)]


def test_a_learner_with_many_episodes_does_not_crowd_out_another() -> None:
    world = World(Waiting("many", 1.0, 2, episodes=20))
    world.run(6)
    world.learners.append(Waiting("late", 1.0, 2, episodes=5))
    world.run()
    both = world.learned[3:14]
    assert abs(both.count("late") - 5) <= 1, "they alternate"


def test_a_large_episode_is_not_starved_by_small_ones_without_end() -> None:
    world = World(Waiting("large", 2.0, 5), *(Waiting(f"small {i}", 0.5, 2, episodes=1000) for i in range(3)))
    world.run(300)
    at = world.learned.index("large")
    assert at <= 45, "after four times its own ten seconds, when each of four has had its share"


def test_an_episode_that_takes_far_longer_than_was_guessed_loses_its_precedence() -> None:
    wrong, other = Waiting("wrong", 10.0, 10), Waiting("other", 5.0, 1)
    world = World(wrong, other, guess=1.0)
    world.order._work = lambda trainee, _: 1.0 if trainee is wrong else 5e4  # type: ignore[comparison-overlap]
    world.run(2)
    assert world.slices == ["wrong", "other"]


def test_what_the_trainer_says_corrects_the_guess() -> None:
    world = World(Waiting("guessed", 1.0, 10), Waiting("other", 2.0, 3))
    chosen: Any = world.order.ready()[0]
    assert chosen.name == "other"
    world.order.begin()
    assert not world.order.has_precedence_over(chosen)
    world.order.follow(chosen, 60.0)
    assert not world.order.has_precedence_over(chosen), "all that is known of the other is that it has more work"
    world.order.of(world.learners[0]).pace = 1e-4  # type: ignore[arg-type]
    assert world.order.has_precedence_over(chosen)


@given(st.lists(st.tuples(st.floats(0.01, 10.0), st.integers(1, 8), st.integers(1, 4)), min_size=1, max_size=6))
def test_no_episode_is_done_much_later_than_if_all_were_trained_at_once(shapes: list[tuple[float, int, int]]) -> None:
    learners = [Waiting(str(i), *shape) for i, shape in enumerate(shapes)]
    world = World(*learners)
    longest = max(seconds for seconds, _, _ in shapes)
    done: dict[str, float] = {}
    while world.order.ready():
        before = len(world.learned)
        world.phase()
        if len(world.learned) > before:
            done[world.learned[-1]] = world.now
    for i, (seconds, phases, episodes) in enumerate(shapes):
        mine = seconds * phases * episodes
        at_once = sum(min(mine, s * p * e) for s, p, e in shapes)  # when each gets on equally fast
        assert done[str(i)] <= at_once + longest + max(s * p for s, p, _ in shapes) + 1e-6
    assert not any(learner.episodes for learner in learners)


def test_a_learner_that_waits_after_a_failure_has_no_turn_and_comes_back() -> None:
    world = World(Waiting("failed", 1.0, 1), Waiting("other", 1.0, 1))
    failed: Any = world.learners[0]
    world.order.defer(failed, 60.0)
    assert [trainee.name for trainee in world.order.ready()] == ["other"]
    world.now += 61.0
    assert len(world.order.ready()) == 2


def test_the_work_of_an_episode_is_what_passes_through_training() -> None:
    training = SimpleNamespace(batch_size=100, epochs=2, min_steps=40, phases=3)
    trainee: Any = SimpleNamespace(config=SimpleNamespace(training=training))
    of = {n: work_of(trainee, SimpleNamespace(examples=n)) for n in (100, 10_000)}  # type: ignore[arg-type]
    assert of == {100: 3 * 40 * 100, 10_000: 3 * 2 * 10_000}
