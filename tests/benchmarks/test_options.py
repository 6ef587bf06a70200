"""Options say what is wrong with them, and become the engine's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import OptionError
from benchmarks.paper import published
from benchmarks.paper.options import PaperOptions, parse_blurry, parse_seeds, parse_settings
from benchmarks.paper.scenario import Blurry
from sharp_engine import preset

HERE = Path()


@pytest.mark.parametrize(
    ("dataset", "memory", "activations"),
    [("mnist", "half", 26), ("fashion-mnist", "full", 50), ("cifar10", "double", 800), ("cifar100", "half", 500)],
)
@pytest.mark.parametrize("which", ["paper", "default"])
def test_short_term_memory_has_the_papers_budget(dataset: str, memory: Any, activations: int, which: Any) -> None:
    config = PaperOptions(dataset, HERE, memory=memory, preset=which).learner_config(seed=3)
    assert config.memory.stm_capacity == activations
    assert config.memory.ltm_per_class == (50 if dataset.startswith("cifar") else 25)
    assert config.seed == 3


def test_the_papers_preset_is_otherwise_the_engines() -> None:
    assert PaperOptions("mnist", HERE).learner_config(0) == preset("mnist")


def test_options_reach_the_engine_and_settings_win() -> None:
    options = PaperOptions(
        "mnist", HERE, m=3, blurry=Blurry(3, 0.3), boundaries="automatic", settings={"memory.replayed_episodes": 2}
    )
    config = options.learner_config(0)
    assert (config.memory.replayed_episodes, config.stream.blurry, config.stream.boundaries) == (2, True, "automatic")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dataset": "imagenet"}, "'imagenet'"),
        ({"seeds": ()}, "seeds"),
        ({"seeds": (1, 1)}, r"\(1, 1\)"),
        ({"fraction": 0.0}, "fraction"),
        ({"memory": "triple"}, "'triple'"),
        ({"m": 5}, "not 5"),
        ({"boundaries": "guessed"}, "'guessed'"),
        ({"preset": "best"}, "'best'"),
        ({"settings": {"training.speed": 3}}, "training.speed"),
        ({"settings": {"training.epochs": "many"}}, "'many'"),
        ({"dataset": "folder"}, "--preset default"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        PaperOptions(**{"dataset": "mnist", "data_root": HERE, **options})


def test_words_on_the_command_line_become_values() -> None:
    assert parse_seeds("4,0") == (4, 0)
    assert parse_blurry("3,0.6") == Blurry(3, 0.6)
    assert parse_settings(["a.b=[1, 2]", "c=true", "d=word", "e=x=y"]) == {
        "a.b": [1, 2],
        "c": True,
        "d": "word",
        "e": "x=y",
    }
    for wrong in (lambda: parse_seeds("1,x"), lambda: parse_blurry("3"), lambda: parse_settings(["key"])):
        with pytest.raises(OptionError):
            wrong()


def test_published_figures_are_those_of_the_papers_tables() -> None:
    assert published.figures("fashion-mnist", "full")["SHARP"] == published.Figure(72.5, 2.5)
    assert published.figures("cifar10", "double")["iCaRL"].mean == 53.6
    assert published.figures("emnist-letters", "half")["SHARP"].mean == 55.8
    assert published.figures("folder", "full") == {}
