"""What a contestant is to its process: it learns episodes, answers, and shows what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.ring.protocol import Inputs, Ints


def _unheard(share: float) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True)
class Setup:
    """What a contestant is told before the stream begins."""

    dataset: str
    shape: tuple[int, ...]
    """Of one example."""
    classes: int
    """How many there will be. Only those may use it who say that they must know it."""
    sequence: tuple[tuple[int, ...], ...]
    """As `classes`: the classes of each episode."""
    memory: int
    """Examples that may be kept as they came, by those who do."""
    seed: int
    blurry: bool = False
    fraction: float = 1.0
    """Share of the training set that comes; those who count updates, not epochs, make fewer of them."""
    pretrained: str = ""
    """A file with the weights of the layers that come first; those who freeze layers load them instead of training."""
    report: Callable[[float], None] = field(default=_unheard, repr=False)
    """Hears which share of an episode is learned."""

    @property
    def vectors(self) -> bool:
        """Whether examples are vectors, not images."""
        return len(self.shape) == 1

    def __getstate__(self) -> dict[str, Any]:
        """Without the way to report, which belongs to the process."""
        return {**self.__dict__, "report": _unheard}


@dataclass(frozen=True)
class Kept:
    """Everything that a contestant would have to save to go on."""

    arrays: Sequence[NDArray[Any]]
    raw_bytes: int = 0
    """Of those, bytes of examples as they came; images count a byte per value, however they are held."""

    @property
    def bytes(self) -> int:
        """Of all."""
        return sum(array.nbytes for array in self.arrays)

    def same(self, other: Kept) -> bool:
        """Whether two are equal to the last bit."""
        pairs = zip(self.arrays, other.arrays, strict=False)
        return len(self.arrays) == len(other.arrays) and all(
            a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
        )


class Contestant(Protocol):
    """A learner in the ring."""

    def learn(self, x: Inputs, y: Ints) -> None:
        """One episode."""
        ...

    def predict(self, x: Inputs) -> Ints:
        """The class of each example."""
        ...

    def kept(self) -> Kept:
        """What it holds now."""
        ...

    def settings(self) -> dict[str, Any]:
        """What it was run with, for the reader."""
        ...


def in_chunks(predict: Callable[[Inputs], Ints], x: Inputs, size: int) -> Ints:
    """Answers for many examples, some at a time."""
    return np.concatenate([predict(x[at : at + size]) for at in range(0, len(x), size)]).astype(np.int64)
