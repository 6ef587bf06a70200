"""Units run out: `inspect` says how many episodes are left, and learning warns before the end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sharp_engine import Learner, preset
from sharp_engine.config import LearnerConfig
from tests.engine.fixtures import examples, linear, mlp

SCARCE: dict[str, Any] = {"layers": (linear(12),) * 3, "tau_min": 0.5, "tau_period": 3}
"""A few units are recruited per episode, and there are few."""


def run(config: LearnerConfig, episodes: int, caplog: pytest.LogCaptureFixture) -> list[tuple[int | None, list[str]]]:
    """After each episode: how many are left, and what was warned of."""
    learner, reported = Learner(config), []
    for number in range(episodes):
        caplog.clear()
        learner.learn_episode(*examples((2 * number, 2 * number + 1), seed=number))
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        reported.append((learner.inspect().episodes_left, warnings))
    return reported


def test_learning_warns_before_units_run_out_and_again_only_when_it_has_become_worse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported = run(mlp(**SCARCE), 9, caplog)
    left = [count for count, _ in reported]
    assert None not in left and left[0] >= 2 and left[-2:] == [0, 0]  # type: ignore[operator]
    least = 2
    for count, warnings in reported:
        assert count is not None
        assert len(warnings) == (count < least)
        least = min(least, count)
    first = next(warnings[0] for count, warnings in reported if warnings)
    assert "last for one more episode" in first


def test_a_learner_with_a_learned_metric_has_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    small = {"architecture.layers": [{"kind": "linear", "units": 8}] * 2, "training.min_steps": 2, "device": "cpu"}
    reported = run(preset("default").with_options(small), 3, caplog)
    assert reported[-1][0] == 0 and not any(warnings for _, warnings in reported)
