"""What is asked for on the command line, checked before any data is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import OptionError, require
from sharp_engine import ConfigError, LearnerConfig, preset


@dataclass(frozen=True)
class LearnerOptions:
    """Data, seeds and settings of all experiments of one command."""

    data_root: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    validation: bool = False
    """Judge by examples split off from the training sets; the test sets are not read."""
    fraction: float = 1.0
    """Share of each training set to learn from, by class."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Engine settings by dotted key, to try something else than the default preset."""

    def __post_init__(self) -> None:
        require(len(self.seeds) > 0, "seeds", self.seeds, "at least one")
        require(len(set(self.seeds)) == len(self.seeds), "seeds", self.seeds, "all different")
        require(min(self.seeds) >= 0, "seeds", self.seeds, "at least 0")
        require(0.0 < self.fraction <= 1.0, "fraction", self.fraction, "in (0, 1]")
        try:
            self.learner_config(self.seeds[0])
        except ConfigError as error:
            raise OptionError(str(error)) from None

    @property
    def for_the_record(self) -> bool:
        """Whether the figures are the ones that the documents quote: whole sets, the test set, the default preset."""
        return not self.validation and self.fraction == 1.0 and not self.settings

    def learner_config(self, seed: int) -> LearnerConfig:
        """The default preset with a seed."""
        return preset("default").with_options({"seed": seed, **self.settings})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, for the result."""
        return {
            "preset": "default",
            "validation": self.validation,
            "fraction": self.fraction,
            "set": self.settings,
            "for_the_record": self.for_the_record,
        }
