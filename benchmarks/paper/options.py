"""What a run of the paper's benchmark is asked for, and the engine settings that follow from it.

Everything is checked on construction, before any data is read. Nothing here reads flags: that is `paper.py`'s work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.datasets import DATASETS
from benchmarks.errors import OptionError, require
from benchmarks.paper import published
from benchmarks.paper.published import Memory
from benchmarks.paper.scenario import CLASSES_PER_EPISODE, Blurry
from sharp_engine import ConfigError, LearnerConfig, preset

Boundaries = Literal["explicit", "automatic"]
Preset = Literal["paper", "sharp", "default"]

_MOST_M = 4


@dataclass(frozen=True)
class PaperOptions:
    """One command's worth of runs: a data set, some seeds, one setting."""

    dataset: str
    data_root: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    fraction: float = 1.0
    """Share of the training set to learn from, stratified by class."""
    memory: Memory = "full"
    """The paper's budgets of short-term memory."""
    m: int | None = None
    """How many previous episodes short-term memory holds; absent: the preset's own."""
    blurry: Blurry | None = None
    """Overlapping episodes instead of the class-incremental sequence."""
    boundaries: Boundaries = "explicit"
    preset: Preset = "paper"
    settings: dict[str, Any] = field(default_factory=dict)
    """Engine settings by dotted key; they win over everything else."""
    validate: bool = False
    """Judge by images split off from the training set; the test set is not read."""
    check: bool = False
    """Run the engine's invariants on every trained learner."""
    classes_per_episode: int = 2
    """Of `folder`; the others have the paper's."""

    def __post_init__(self) -> None:
        require(self.dataset in DATASETS, "dataset", self.dataset, "one of " + ", ".join(DATASETS))
        require(len(self.seeds) > 0, "seeds", self.seeds, "at least one")
        require(len(set(self.seeds)) == len(self.seeds), "seeds", self.seeds, "all different")
        require(min(self.seeds) >= 0, "seeds", self.seeds, "at least 0")
        require(0.0 < self.fraction <= 1.0, "fraction", self.fraction, "in (0, 1]")
        require(self.memory in published.MEMORIES, "memory", self.memory, "half, full or double")
        require(self.m is None or 0 <= self.m <= _MOST_M, "m", self.m, f"from 0 to {_MOST_M}")
        require(self.boundaries in ("explicit", "automatic"), "boundaries", self.boundaries, "explicit or automatic")
        require(self.preset in ("paper", "sharp", "default"), "preset", self.preset, "paper, sharp or default")
        require(self.classes_per_episode >= 1, "classes per episode", self.classes_per_episode, "at least 1")
        if self.dataset == "folder" and self.preset == "paper":
            raise OptionError("the paper has no settings for 'folder': take --preset default")
        try:
            self.learner_config(self.seeds[0])
        except ConfigError as error:
            raise OptionError(str(error)) from None

    @property
    def per_episode(self) -> int:
        """Classes of an episode of the class-incremental sequence."""
        return CLASSES_PER_EPISODE.get(self.dataset, self.classes_per_episode)

    @property
    def slug(self) -> str:
        """A short name for files, from what was asked for."""
        words = [self.dataset, self.preset]
        words += [self.memory] if self.memory != "full" else []
        words += [f"m{self.m}"] if self.m is not None else []
        words += [f"blurry-{self.blurry.classes}-{self.blurry.novelty:g}"] if self.blurry else []
        words += ["automatic"] if self.boundaries == "automatic" else []
        words += [f"fraction-{self.fraction:g}"] if self.fraction < 1.0 else []
        words += ["validation"] if self.validate else []
        return "-".join(words)

    def learner_config(self, seed: int) -> LearnerConfig:
        """The engine's settings: the preset, then the paper's memory budget, then the options, then `settings`."""
        config = preset(self.dataset if self.preset == "paper" else self.preset)
        changes: dict[str, Any] = {"seed": seed, "stream.boundaries": self.boundaries}
        if self.dataset in published.BUDGETS:
            changes["memory.stm_capacity"] = published.BUDGETS[self.dataset][self.memory]
            changes["memory.ltm_per_class"] = published.LTM_PER_CLASS[self.dataset]
        else:
            times = {"half": 0.5, "full": 1.0, "double": 2.0}[self.memory]
            changes["memory.stm_capacity"] = max(1, round(config.memory.stm_capacity * times))
        if self.m is not None:
            changes["memory.replayed_episodes"] = self.m
        if self.blurry is not None:
            changes["stream.blurry"] = True
        return config.with_options({**changes, **self.settings})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, for the result."""
        return {
            "dataset": self.dataset,
            "seeds": list(self.seeds),
            "fraction": self.fraction,
            "memory": self.memory,
            "m": self.m,
            "blurry": None if self.blurry is None else {"c": self.blurry.classes, "eta": self.blurry.novelty},
            "boundaries": self.boundaries,
            "preset": self.preset,
            "set": self.settings,
            "validate": self.validate,
            "classes_per_episode": self.per_episode if self.blurry is None else self.blurry.classes,
        }


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from a list with commas.

    >>> parse_seeds("0,1,2")
    (0, 1, 2)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"seeds must be whole numbers with commas between them, not {text!r}") from None


def parse_blurry(text: str) -> Blurry:
    """The two figures of a blurry sequence.

    >>> parse_blurry("3,0.3")
    Blurry(classes=3, novelty=0.3)
    """
    try:
        c, eta = text.split(",")
        figures = int(c), float(eta)
    except ValueError:
        raise OptionError(f"blurry must be c,eta such as 3,0.3, not {text!r}") from None
    return Blurry(*figures)


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Engine settings from key=value pairs; a value that is not JSON is taken as a word.

    >>> parse_settings(["training.epochs=2", "training.selection=covered"])
    {'training.epochs': 2, 'training.selection': 'covered'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"a setting must be key=value, not {pair!r}")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings
