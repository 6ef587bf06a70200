"""Settings that may change while a learner lives, and those that may not."""

import pytest

from sharp_engine import ConfigError, Learner
from tests.engine.fixtures import mlp


def test_settings_of_stream_and_training_may_change() -> None:
    learner = Learner(mlp())
    learner.reconfigure(learner.config.with_options({"stream.blurry": True, "training.phases": 7}))
    assert learner.config.stream.blurry and learner.config.training.phases == 7


def test_the_place_that_pretrained_weights_came_from_may_change() -> None:
    config = mlp()
    learner = Learner(config)
    learner.config = config.with_options({"architecture.pretrained": "gone.safetensors"})
    learner.reconfigure(config)
    assert learner.config.architecture.pretrained is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [("architecture.density", 0.9), ("memory.stm_capacity", 4), ("metric.floor", 0.7), ("seed", 9)],
)
def test_what_a_learner_was_made_from_may_not_change(setting: str, value: object) -> None:
    learner = Learner(mlp())
    before = learner.config
    with pytest.raises(ConfigError, match="cannot change"):
        learner.reconfigure(before.with_options({setting: value}))
    assert learner.config is before
