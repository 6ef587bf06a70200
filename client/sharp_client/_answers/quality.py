"""How good versions are: held-out examples, over all and per class, beside the version before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sharp.v1 import quality_pb2

from .._labels import Label
from .decoding import Answer


@dataclass(frozen=True, repr=False)
class ClassQuality(Answer, message=quality_pb2.ClassQuality):
    """How the held-out examples of one class are answered."""

    label: Label = ""
    """The class."""
    examples: int = 0
    """Its held-out examples."""
    right: int = 0
    """Those of them that are answered right."""

    @property
    def accuracy(self) -> float:
        """Share that is right, 0 to 1."""
        return self.right / self.examples if self.examples else 0.0


@dataclass(frozen=True, repr=False)
class Confusion(Answer, message=quality_pb2.Confusion):
    """Held-out examples of one class that are answered with another."""

    label: Label = ""
    """The class that they are of."""
    answered: Label = ""
    """The answer that they get."""
    examples: int = 0
    """How many."""


@dataclass(frozen=True, repr=False)
class Quality(Answer, message=quality_pb2.Quality):
    """How a version answers held-out examples."""

    model_version: int = 0
    """The version."""
    create_time: datetime | None = None
    """When it came to serve."""
    examples: int = 0
    """Held-out examples in all."""
    right: int = 0
    """Those of them that are answered right."""
    classes: tuple[ClassQuality, ...] = field(default=(), repr=False)
    """The same by class, worst first: all of them from `quality`, the worst 20 elsewhere."""
    confusions: tuple[Confusion, ...] = field(default=(), repr=False)
    """The pairs of classes that are confused most, most frequent first."""

    @property
    def accuracy(self) -> float:
        """Share that is right, 0 to 1."""
        return self.right / self.examples if self.examples else 0.0


@dataclass(frozen=True, repr=False)
class ClassFall(Answer, message=quality_pb2.ClassFall):
    """A class that got worse from one version to the next."""

    before: ClassQuality = field(default_factory=ClassQuality)
    """Its held-out examples before."""
    now: ClassQuality = field(default_factory=ClassQuality)
    """The same now."""

    @property
    def points(self) -> float:
        """By how many points of a hundred."""
        return 100.0 * (self.before.accuracy - self.now.accuracy)


@dataclass(frozen=True, repr=False)
class QualityReport(Answer, message=quality_pb2.QualityReport):
    """A version beside the one before it."""

    quality: Quality | None = None
    """The version. None: there were too few held-out examples to measure it."""
    before: Quality | None = None
    """The version before. None: there was none, or it was not measured."""
    fallen: tuple[ClassFall, ...] = ()
    """Classes that got worse by more than the server's setting and than chance explains, worst first."""
