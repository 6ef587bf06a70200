"""What a ring is asked for; everything is checked on construction, before any data is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.datasets import DATASETS
from benchmarks.errors import require
from benchmarks.paper import scenario
from benchmarks.paper.scenario import Blurry, Sequence_
from sharp_engine import PRESETS

Order = Literal["label", "random"]

PER_EPISODE = {**scenario.CLASSES_PER_EPISODE, "banking77": 7}
USUAL_ORDER: dict[str, Order] = {"banking77": "random"}
"""The order of classes where none is asked for; by label, as the paper has it, for all others."""

OWN_DATA = ("folder", "vectors")
"""What a user brings: which one it is, its place tells."""

RAW_EXAMPLES = {"mnist": 50, "fashion-mnist": 50, "emnist-letters": 50, "cifar10": 534, "cifar100": 1334}
"""Examples that may be kept as they came: the paper's budgets, in bytes equal to SHARP's short-term memory."""
STANDS_FOR = {"letters": "emnist-letters"}
"""Whose settings of the paper's comparison with pretrained layers another data set takes, which the paper lacks."""
PRETRAINED_EPOCHS = 10
"""The engine's own; the paper names none."""
RAW_PER_CLASS = 20
"""The same for data that the paper does not have: what iCaRL's paper gives a class."""


@dataclass(frozen=True)
class RingOptions:
    """One data set, all contestants or some."""

    dataset: str
    data_root: Path
    seeds: tuple[int, ...] = (0,)
    only: str = ""
    """Names and kinds of contestants; empty for all."""
    fraction: float = 1.0
    slow_fraction: float | None = None
    """For those that train a network by gradients; absent: as all others."""
    blurry: Blurry | None = None
    order: Order | None = None
    """Of classes; absent: the data set's usual one."""
    classes_per_episode: int | None = None
    """Absent: the paper's, or 2."""
    memory: int | None = None
    """Examples to keep; absent: the paper's budget, or twenty per class."""
    validate: bool = False
    """Judge by examples split off from the training set; the test set is not read."""
    pretrained: str | None = None
    """What layers are pretrained on: a data set below the same folder, or a file of `sharp_engine.pretrain`."""
    pretrained_epochs: int = PRETRAINED_EPOCHS
    """Passes over that data set."""
    threads: int = 1
    ring_python: Path | None = None
    """The interpreter of the rivals' environment."""
    launcher: Sequence[str] = field(default=())
    """A command that each contestant's process is started through, such as `nice -n 19`."""
    resume_from: Path | None = None
    """A `result.json` of the same ring: what it holds, and the output folder lacks, counts as finished."""
    again: bool = False
    """Run chosen contestants that are finished once more."""

    def __post_init__(self) -> None:
        require(self.dataset in DATASETS, "dataset", self.dataset, "one of " + ", ".join(DATASETS))
        require(len(self.seeds) > 0, "seeds", self.seeds, "at least one")
        require(len(set(self.seeds)) == len(self.seeds), "seeds", self.seeds, "all different")
        require(min(self.seeds) >= 0, "seeds", self.seeds, "at least 0")
        for name in ("fraction", "slow_fraction"):
            value = getattr(self, name)
            require(value is None or 0.0 < value <= 1.0, name, value, "in (0, 1]")
        require(self.order in (None, "label", "random"), "order", self.order, "label or random")
        for name in ("classes_per_episode", "memory", "threads", "pretrained_epochs"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "at least 1")

        if self.resume_from is not None:
            require(self.resume_from.is_file(), "resume_from", self.resume_from, "a file")
        if self.pretrained is not None:
            sources = tuple(name for name in DATASETS if name in PRESETS)
            known = self.pretrained in sources or Path(self.pretrained).is_file()
            require(known, "pretrained", self.pretrained, f"a file, or one of {', '.join(sources)}")
            require(self.pretrained != self.dataset, "pretrained", self.pretrained, "other data than the ring's own")

    @property
    def pretrained_here(self) -> bool:
        """Whether layers are pretrained on a data set, and no file is brought."""
        return self.pretrained in PRESETS

    @property
    def settings_of(self) -> str:
        """The data set whose settings of the paper apply."""
        return STANDS_FOR.get(self.dataset, self.dataset) if self.pretrained else self.dataset

    @property
    def slug(self) -> str:
        """A short name for files. Fractions are not part of it: each contestant keeps its own."""
        words = [self.dataset, *([self.data_root.stem] if self.dataset in OWN_DATA else [])]
        words += [f"blurry-{self.blurry.classes}-{self.blurry.novelty:g}"] if self.blurry else []
        words += [f"{self.order}-order"] if self.order else []
        words += [f"{self.classes_per_episode}-classes"] if self.classes_per_episode else []
        words += [f"memory-{self.memory}"] if self.memory else []
        words += [f"pretrained-{Path(self.pretrained).stem}"] if self.pretrained else []
        words += ["validation"] if self.validate else []
        return "-".join(words)

    def fraction_of(self, slow: bool) -> float:
        """Share of the training set that a contestant learns from."""
        return self.slow_fraction if slow and self.slow_fraction is not None else self.fraction

    def sequence(self, classes: int, seed: int) -> Sequence_:
        """The classes of each episode."""
        if self.blurry is not None:
            return scenario.blurry_sequence(classes, self.blurry, seed)
        per_episode = min(self.classes_per_episode or PER_EPISODE.get(self.dataset, 2), classes)
        if (self.order or USUAL_ORDER.get(self.dataset, "label")) == "random":
            return scenario.in_random_order(classes, per_episode, seed)
        return scenario.class_incremental(classes, per_episode)

    def memory_for(self, classes: int) -> int:
        """Examples to keep."""
        return self.memory or RAW_EXAMPLES.get(self.settings_of, RAW_PER_CLASS * classes)

    def to_dict(self) -> dict[str, Any]:
        """What figures depend on, as plain JSON values."""
        own = {"data": str(self.data_root.resolve())} if self.dataset in OWN_DATA else {}
        return {
            "dataset": self.dataset,
            **own,
            "blurry": None if self.blurry is None else {"c": self.blurry.classes, "eta": self.blurry.novelty},
            "order": self.order or USUAL_ORDER.get(self.dataset, "label"),
            "classes_per_episode": self.classes_per_episode or PER_EPISODE.get(self.dataset, 2),
            "memory": self.memory,
            "validate": self.validate,
            "threads": self.threads,
        }
